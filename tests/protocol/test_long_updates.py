"""Between large models rounding makes an update longer than its gradients; what leaves a device is not longer."""

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology
from h2fdp.privacy.places import Segment
from h2fdp.protocol.messages import Order


def group(method, trust, **settings):
    topology = Topology.regular(edges=1, devices=3, trust=trust, seed=1)
    made = Experiment(topology, "digits", method=method, intervals=2, local_steps=4, clip_norm=0.5, **settings)
    return made.prepare().blueprint.device_group(0)


class Devices:
    """Three devices and what they need to upload."""

    def __init__(self, method="h2fdp", trust=1.0, **settings):
        self.group = group(method, trust, **settings)
        self.pipeline, self.rows = self.group.pipeline, np.arange(3)

    def upload(self, updates):
        noise = self.rows * 0.0 + 1e-20 if self.pipeline.noisy else self.rows[:0] * 0.0
        plan = Order(segment=Segment(0, 0, 4, "global", step_size=0.1), rows=self.rows, levels=noise)
        return self.pipeline.encode(updates.clone(), torch.zeros(updates.shape[1]), self.group.moment(plan))


def of_lengths(*lengths):
    unit = torch.nn.functional.normalize(torch.arange(1.0, 651.0), dim=0)
    return torch.stack([length * unit for length in lengths])


@pytest.mark.parametrize("trust", [1.0, 0.0])
@pytest.mark.parametrize(("settings", "longest"), [({}, 0.2), ({"momentum": 0.5}, 0.05 * (4 - 0.9375) / 0.5)])
def test_no_update_is_longer_than_the_sensitivity_says(trust, settings, longest):
    """longest: eta G times 4 steps; with momentum 1/2 times (4 - (1 - 1/16)) / (1/2)."""
    updates = of_lengths(0.9 * longest, 1.0003 * longest, 1.3 * longest)
    sent = Devices(trust=trust, **settings).upload(updates)
    assert torch.equal(sent[0], updates[0])
    lengths = sent.double().norm(dim=1)
    assert (lengths <= longest * (1 + 1e-6)).all()
    torch.testing.assert_close(lengths[1:].float(), torch.full((2,), longest), rtol=1e-5, atol=0)


def test_what_is_at_its_bound_but_for_rounding_keeps_its_bits():
    updates = of_lengths(0.2, 0.2 * (1 + 5e-7), 0.2 * (1 - 5e-7))
    assert torch.equal(Devices().upload(updates), updates)


@pytest.mark.parametrize("method", ["hfl", {"extends": "h2fdp", "privacy": "dp-sgd"}])
def test_where_no_noise_is_sized_for_it_an_update_is_as_long_as_it_is(method):
    settings = {"clip_scope": "record"} if method != "hfl" else {}
    updates = of_lengths(5.0, 0.1, 0.3)
    assert torch.equal(Devices(method, **settings).upload(updates), updates)
