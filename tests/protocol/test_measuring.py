"""Estimates for the controller: right on quadratics, noisy at the boundary of trust, raw only where the run leaks."""

import numpy as np
import pytest
import torch

from h2fdp.privacy import GradientSumMechanism, Pipeline
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.privacy.mechanisms.stages import UpdateNoise
from h2fdp.protocol import DeviceGroup, EdgeServer, InProcessNodes, IntervalPlan, SubnetFacts
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.planned_releases import observation
from h2fdp.schedules import Decision
from h2fdp.schedules.device_estimates import GradientProbe, MeasuringOrder
from h2fdp.training.batches import BatchSampler
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import PLAIN_TERMS, TrainingResult
from tests.privacy.uploads import PLACES
from tests.protocol.subnets import STREAMS
from tests.protocol.test_noise_boundaries import carries

CURVATURES = torch.tensor([[1.0, 0.5, 2.0], [3.0, 3.0, 3.0]])
SPREAD = 0.4
RANGES = np.array([10.0, 8.0, 5.0])
DEVICES = 200


class NoisyQuadratic:
    """One gradient step on w^T A_i w / 2 whose gradient error follows the batch that was drawn."""

    def train(self, starts, records, rows, batches, step_size, terms=PLAIN_TERMS):
        found = []
        for position, row in enumerate(rows):
            seed = int(batches.indices[0, position, 0])
            error = SPREAD * np.random.default_rng([int(row), seed]).standard_normal(3)
            found.append(step_size * (CURVATURES[int(row) % 2] * starts[position] + torch.from_numpy(error).float()))
        return TrainingResult(torch.stack(found))


def nodes(source, devices=2, leaks=False):
    records = DeviceRecords(
        torch.zeros(devices, 1),
        torch.zeros(devices, dtype=torch.int64),
        np.arange(devices + 1),
        torch.ones(1),
        torch.zeros(1),
    )
    sampler = BatchSampler(STREAMS, "edge", "fixed", np.full(devices, 10**6), np.full(devices, 1e-6), 4)
    gradient_probe = GradientProbe(NoisyQuadratic(), RANGES, leaks)
    side = Pipeline((UpdateNoise(),)) if source == "device" else Pipeline()
    group = DeviceGroup(
        STREAMS, side, 0, lambda row: f"edge/{row + 1}", records, sampler, NoisyQuadratic(), gradient_probe
    )
    edge = EdgeServer(
        "edge",
        STREAMS,
        source == "edge",
        InProcessNodes({"d": group}),
        {"d": (0, devices)},
        gradient_probe,
        pipeline=side,
    )
    return group, edge


def plan(devices, noise, interval=0):
    return Plan(
        interval=interval,
        first_slot=3 * interval,
        segments=(3,),
        step_size=0.1,
        rows=np.arange(devices),
        shares=np.full(devices, 1 / devices),
        noise_std=np.empty((1, 0)),
        estimate_noise=noise,
    )


MODEL = torch.tensor([1.0, -2.0, 0.5])


def test_raw_estimates_on_quadratics_are_the_true_constants():
    _, edge = nodes("none", leaks=True)
    deviations = []
    for interval in range(300):
        found = edge.measure(MODEL, plan(2, np.empty(0), interval))
        assert found.values[0] == pytest.approx(3.0, rel=1e-3)  # the largest curvature: the second device's
        deviations.append(found.values[1])
        assert (found.noise_std == 0).all()
    # E||g - g'||^2 / 2 = 3 SPREAD^2; 300 draws of chi-square(3): six standard deviations.
    mean_square = float(np.mean(np.square(deviations)))
    assert mean_square == pytest.approx(3 * SPREAD**2, abs=6 * SPREAD**2 * (6 / 300) ** 0.5)


def test_the_dispersion_is_the_distance_to_the_subnets_mean():
    _, edge = nodes("none", leaks=True)
    found = np.mean([edge.measure(MODEL * 100, plan(2, np.empty(0), k)).values[2] for k in range(20)])
    gradients = CURVATURES * MODEL * 100
    expected = float((gradients[0] - gradients.mean(dim=0)).norm())
    assert found == pytest.approx(expected, rel=0.02)


def test_devices_under_an_untrusted_edge_send_no_estimate_without_noise():
    group, _ = nodes("device")
    with pytest.raises(AssertionError, match="without noise"):
        group.measure(MODEL, MeasuringOrder(0, 3, 0.1, np.arange(2), np.empty(0)))


def test_devices_under_an_untrusted_edge_never_send_gradients():
    group, _ = nodes("device")
    assert group.measure(MODEL, MeasuringOrder(0, 3, 0.1, np.arange(2), np.ones(2))).gradients is None


def test_each_devices_numbers_carry_their_noise():
    """Two measurements of many devices under different noise streams; chi-square at 1e-6 on what differs."""
    noise = 0.7
    group, _ = nodes("device", DEVICES)
    order = MeasuringOrder(0, 3, 0.1, np.arange(DEVICES), np.full(DEVICES, noise))
    raw, _ = nodes("device", DEVICES, leaks=True)
    clean = raw.gradient_probe.clipped(raw.measure(MODEL, order).values)
    residuals = (group.measure(MODEL, order).values - clean).ravel()
    assert carries(torch.from_numpy(residuals), noise)
    assert len(np.unique(residuals)) == residuals.size


@pytest.mark.slow
def test_a_trusted_edge_releases_its_maxima_under_one_noise():
    noise = 0.3
    _, edge = nodes("edge")
    _, raw = nodes("edge", leaks=True)
    residuals = []
    for interval in range(200):
        released = edge.measure(MODEL, plan(2, np.array([noise]), interval))
        clean = raw.gradient_probe.clipped(raw.measure(MODEL, plan(2, np.empty(0), interval)).values)
        assert released.gradient is None
        assert released.noise_std == pytest.approx(noise * RANGES)
        residuals.append(released.values / RANGES - clean)
    residuals = np.concatenate(residuals)
    assert carries(torch.from_numpy(residuals), noise)


def test_what_exceeds_a_range_is_cut_to_it_before_it_is_released():
    group, _ = nodes("device")
    tiny = GradientProbe(NoisyQuadratic(), np.array([1e-3, 1e-3, 1e-3]), leaks=False)
    assert tiny.clipped(np.array([[5.0, np.nan], [np.inf, 2.0]])).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert group.gradient_probe.clipped(np.array([[-1.0, 4.0]])).tolist() == [[0.0, 0.5]]


def test_an_untrusted_edge_relays_the_mean_and_says_how_noisy_it_is():
    group, edge = nodes("device")
    noise = np.array([0.3, 0.4])
    released = edge.measure(MODEL, plan(2, noise))
    single = group.measure(MODEL, MeasuringOrder(0, 3, 0.1, np.arange(2), noise)).values
    assert released.values[:2] == pytest.approx(single.mean(axis=0) * RANGES[:2])
    assert np.isnan(released.values[2])
    assert released.noise_std[:2] == pytest.approx(0.25 * RANGES[:2])


@pytest.mark.parametrize(("source", "expected"), [("device", 2 * (0.3**2 + 0.5**2)), ("edge", 0.7**2 * 4)])
def test_the_cloud_knows_the_variance_of_the_noise_on_an_upload(source, expected):
    """Two releases a device or an edge server; the average of two devices has a quarter of the sum of theirs."""
    levels = [[0.6, 1.0], [0.6, 1.0]] if source == "device" else [[0.7 * 2**0.5]] * 2
    part = Plan(
        interval=0,
        first_slot=0,
        segments=(1, 2),
        step_size=0.1,
        rows=np.arange(2),
        shares=np.full(2, 0.5),
        noise_std=np.array(levels),
    )
    facts = {"edge": SubnetFacts("edge", (PLACES[source],), np.array([5, 5]), np.array([0.1, 0.1]), "poisson")}
    decision = Decision(3, 0.1, np.array([2]))
    noise = GradientSumMechanism(PaperCalibration(1.0, 1e-5, 1.0, 1, 1), ClippedBatches(1.0), "paper")
    interval = IntervalPlan(0, 0, decision, {"edge": part}, np.ones(1), np.ones(1))
    seen = observation(interval, MODEL, [MODEL], facts, None, noise)
    assert seen.noise_variance.tolist() == pytest.approx([expected])


def test_one_device_tells_no_dispersion():
    _, edge = nodes("none", devices=1, leaks=True)
    assert np.isnan(edge.measure(MODEL, plan(1, np.empty(0))).values[2])
