"""What devices of several subnets release by one call is, to the bit, what each subnet's devices release alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp import Experiment, Topology
from h2fdp.privacy import Moment
from h2fdp.privacy.modular_sums import IntegerSum, ModularCode
from h2fdp.privacy.places import Segment, StageFacts
from h2fdp.protocol.messages import Order

METHODS = {
    "noise on updates": ("h2fdp", {}),
    "raw updates of bounded length": ("hfl", {}),
    "noise on models": ({"extends": "h2fdp", "privacy": "output"}, {}),
    "whole updates": (
        {"extends": "h2fdp", "privacy": "central"},
        {"aggregate_every": None, "aggregations_per_interval": 0},
    ),
    "noise inside steps": ({"extends": "h2fdp", "privacy": "dp-sgd"}, {"clip_scope": "record"}),
}


def groups(method, **settings):
    trust = float(method == METHODS["whole updates"][0])
    topology = Topology.regular(edges=3, devices=4, trust=trust, seed=1)
    made = Experiment(topology, "digits", method=method, intervals=2, local_steps=4, clip_norm=0.5, **settings)
    blueprint = made.prepare().blueprint
    return [blueprint.device_group(number) for number in range(3)]


def order(rows, level, noisy, **further):
    return Order(
        segment=Segment(3, 12, 16, "local", step_size=0.1),
        rows=rows,
        levels=np.full(len(rows), level) if noisy else np.empty(0),
        **further,
    )


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), length=st.sampled_from([1e-3, 0.2, 5.0, 1e30]))
def test_together_is_alone_to_the_bit(name, seed, length):
    method, given_settings = METHODS[name]
    parties = groups(method, **given_settings)
    drawn = np.random.default_rng(seed)
    rows = [np.flatnonzero(drawn.random(4) < 0.7) for _ in parties]
    rows = [own if own.size else np.array([2]) for own in rows]
    noisy, levels = parties[0].pipeline.noisy, (0.1, 0.2, 0.3)
    orders = [order(own, level, noisy) for own, level in zip(rows, levels, strict=True)]
    models = [torch.from_numpy(drawn.standard_normal(650)).float() for _ in parties]
    updates = [torch.from_numpy(drawn.standard_normal((len(own), 650)) * length).float() for own in rows]
    alone = [
        party.pipeline.encode(own.clone(), model, party.moment(asked))
        for party, own, model, asked in zip(parties, updates, models, orders, strict=True)
    ]
    starts = torch.cat([model.expand(len(own), -1) for model, own in zip(models, rows, strict=True)])
    before = starts.clone()
    (stages,) = {party.pipeline for party in parties}
    moments = [party.moment(asked) for party, asked in zip(parties, orders, strict=True)]
    assert torch.equal(stages.encode(torch.cat(updates), starts, Moment.joined(moments)), torch.cat(alone))
    assert torch.equal(starts, before), "what devices were sent is read, not written"


def test_devices_of_other_stages_release_apart():
    first, second, _ = groups("h2fdp")
    code, every = ModularCode(bits=16, spacing=0.5, parameters=650, node="a"), np.arange(4)
    assert first.pipeline == second.pipeline
    assert first.pipeline != groups("hfl")[0].pipeline
    sums = [StageFacts(code=IntegerSum(code, every, every / 6)) for _ in range(2)]
    assert len({StageFacts(), *sums}) == 3


def test_a_device_that_must_add_noise_refuses_in_company_too():
    parties, rows = groups("h2fdp"), np.arange(4)
    orders = [order(rows, 0.1, True), order(rows, 0.1, False), order(rows, 0.1, True)]
    with pytest.raises(AssertionError, match="without noise"):
        Moment.joined([party.moment(asked) for party, asked in zip(parties, orders, strict=True)])
