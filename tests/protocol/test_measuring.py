"""What a schedule has devices measure after an interval, and what the cloud knows of the noise on uploads."""

import numpy as np
import pytest
import torch

from experiments.resource_budget.drift import DeviceSecants, measure_secants
from h2fdp import Experiment, Topology, UserError
from h2fdp.costs.traffic import Tasks
from h2fdp.privacy import GradientSumMechanism
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.privacy.places import Segment
from h2fdp.protocol import IntervalPlan, SubnetFacts
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.planned_releases import observation
from h2fdp.schedules import Decision, OwnSchedule
from tests.privacy.uploads import PLACES

MODEL = torch.tensor([1.0, -2.0, 0.5])
NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=1)
STEP = 1e-3


def at_model(devices):
    """Where devices ended, and how their losses change along their own gradients, by differences and by products."""
    here = devices.model.expand(len(devices.ends), -1)
    gradients = devices.gradients(here)
    changes = np.subtract(*(devices.losses(here + sign * STEP * gradients) for sign in (1, -1))) / (2 * STEP)
    return {
        "ends": devices.ends.numpy(),
        "starts": (devices.ends + devices.last_steps).numpy(),
        "changes": changes,
        "squares": gradients.square().sum(dim=1).numpy(),
        **measure_secants(devices),
    }


class Measuring(OwnSchedule):
    observes = True
    seen = []  # noqa: RUF012 - of the class, as runs copy their schedules

    def __init__(self, measures=at_model):
        self._measures = measures

    @property
    def measures(self):
        return self._measures

    def choose(self, interval, slot):
        return Decision(1, self.context.step_size, self.context.participation)

    def observe(self, seen):
        self.seen.append(seen)


def experiment(schedule):
    keys = {"intervals": 3, "local_steps": 1, "aggregations_per_interval": 0, "batch_size": 8, "step_size": 0.5}
    method = {"privacy": "none", "schedule": schedule}
    return Experiment(topology=NETWORK, data="digits", model="softmax", method=method, training=keys)


@pytest.mark.run
def test_devices_measure_where_they_ended_and_at_the_model_that_followed(tmp_path):
    Measuring.seen.clear()
    run = experiment(Measuring()).run(tmp_path / "run")
    assert run.summary["leaking"] is False  # as it promises nothing
    seen = [each.measured for each in Measuring.seen if each.measured is not None]
    assert len(seen) == len(run.metrics) == 3
    for number, each in enumerate(seen):
        assert each["weights"].sum() == pytest.approx(1.0)
        # The average of where devices ended is the next model, and with one step they ended one step from the last one.
        mean = each["weights"] @ each["ends"]
        if number + 1 < len(seen):
            np.testing.assert_allclose(mean[None].repeat(6, axis=0), seen[number + 1]["starts"], atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(each["ends"] - mean, axis=1), each["distance"], rtol=1e-2, atol=1e-5)
        np.testing.assert_allclose(each["changes"], each["squares"], rtol=0.05)
        apart = each["gradient"] - each["weights"] @ each["gradient"]
        secants = {name: each[name] for name in each if name not in ("ends", "starts", "changes", "squares")}
        found = DeviceSecants.of(secants).divergence
        np.testing.assert_allclose(found, np.linalg.norm(apart, axis=1), rtol=1e-4)


@pytest.mark.run
def test_an_answer_that_is_not_of_each_device_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"expected names with an array of 3 rows.*; found \{'mean': 1\}"):
        experiment(Measuring(lambda devices: {"mean": np.ones(1)})).run(tmp_path / "run")


@pytest.mark.parametrize(("source", "expected"), [("device", 2 * (0.3**2 + 0.5**2)), ("edge", 0.7**2 * 4)])
def test_the_cloud_knows_the_variance_of_the_noise_on_an_upload(source, expected):
    """Two releases a device or an edge server; the average of two devices has a quarter of the sum of theirs."""
    levels = [[0.6, 1.0], [0.6, 1.0]] if source == "device" else [[0.7 * 2**0.5]] * 2
    part = Plan(
        at=Segment.row(0, 0, (1, 2), 0.1),
        tasks=Tasks.planned(np.arange(2), (1, 2)),
        shares=np.full(2, 0.5),
        weights=np.full((2, 2), 0.5),
        reach=np.full((2, 2), 0.5),
        noise_std=np.array(levels),
    )
    facts = {"edge": SubnetFacts("edge", (PLACES[source],), np.array([5, 5]), np.array([0.1, 0.1]), "poisson")}
    decision = Decision(3, 0.1, np.array([2]))
    noise = GradientSumMechanism(PaperCalibration(1.0, 1e-5, 1.0, 1, 1), ClippedBatches(1.0), "paper")
    interval = IntervalPlan(0, 0, decision, {"edge": part}, np.ones(1), np.ones(1))
    seen = observation(interval, MODEL, [MODEL], facts, noise)
    assert seen.noise_variance.tolist() == pytest.approx([expected])
