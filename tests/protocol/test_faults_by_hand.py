"""Intervals in which devices fail, with numbers worked out by hand; noises, weights and ledger rows of who is left.

The same two devices as without faults: F_1 = |w - 8|^2 / 2, F_2 = |w|^2 / 2, eta = 1/2, w(0) = 0. One step halves the
distance to the target: device 1 goes 0 -> 4 -> 6, device 2 stays at 0.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import GradientSumMechanism
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.protocol import Averaging, Cloud, InProcessNodes, IntervalPlan, Planner, SubnetFacts
from h2fdp.protocol.arrivals import Faults
from h2fdp.protocol.messages import present_shares
from h2fdp.protocol.planned_releases import observation
from h2fdp.schedules import AggregationTimes, Decision, FixedSchedule
from tests.privacy.uploads import PLACES
from tests.protocol.subnets import STREAMS, edge_server, noise, subnet_plan

TARGETS = [[8.0], [0.0]]
START = torch.tensor([0.0])


def finishing(steps, plan):
    """The plan where devices finish (segments, s) steps before each aggregation."""
    tasks = replace(plan.tasks, steps=np.array(steps), whole=False)
    weights = present_shares(plan.shares, tasks.uploads)
    return replace(plan, tasks=tasks, weights=weights, reach=weights)


GONE_AFTER_ONE = [[1, 1], [0, 1]]  # device 1 drops out after the first of two
ALL_GONE = [[1, 1], [0, 0]]


def upload(source, segments, steps, noise_std=()):
    plan = finishing(steps, subnet_plan(segments, 2, noise_std))
    return edge_server(TARGETS, source).run_interval(START, plan).update


def test_a_device_that_drops_out_counts_until_then_and_the_rest_renormalises():
    # Slot 1: 4 and 0, w_c = 2. Slot 2: device 2 alone goes 2 -> 1, and its update weighs 1: the upload is 0 - 1.
    assert upload("none", (1, 1), GONE_AFTER_ONE).item() == -1.0


def test_weights_renormalise_in_proportion():
    plan = replace(subnet_plan((1, 1), 3, []), shares=np.array([0.5, 0.375, 0.125]))
    plan = finishing([[1, 1, 1], [0, 1, 1]], plan)
    # Slot 1: 4, 2, 0 with weights 1/2, 3/8, 1/8: w_c = 2.75. Slot 2: 3.375 with 3/4, 1.375 with 1/4: w = 2.875.
    found = edge_server([[8.0], [4.0], [0.0]], "none").run_interval(START, plan).update
    assert found.item() == pytest.approx(-2.875)


def test_a_stragglers_update_is_averaged_as_it_is():
    # Device 1 does one of two steps: 0 -> 4; the mean of -4 and 0.
    assert upload("none", (2,), [[1, 2]]).item() == -2.0


@pytest.mark.parametrize(
    ("source", "levels"), [("none", ()), ("edge", [[0.25], [0.0]]), ("device", [[0.25, 0.5], [1, 2]])]
)
def test_when_all_are_gone_the_edge_server_uploads_what_it_has(source, levels):
    # After slot 1 w_c = 2 less the local noise; then nothing comes, so that nothing is released and no noise added.
    single = {
        "none": 0.0,
        "edge": 0.25 * noise("edge", "noise-local", 0, 1, 1),
        "device": (0.25 * noise("edge/1", "noise-local", 0, 1, 1) + 0.5 * noise("edge/2", "noise-local", 0, 1, 1)) / 2,
    }
    torch.testing.assert_close(upload(source, (1, 1), ALL_GONE, levels), -2 + single[source] + torch.zeros(1))


def test_an_aggregation_that_nobody_reaches_leaves_the_model_as_it_was():
    # Two slow devices: nothing before the first aggregation, one step before the second.
    found = upload("none", (1, 1), [[0, 0], [1, 1]])
    assert found.item() == -2.0


def test_under_an_untrusted_edge_server_only_those_that_are_left_add_noise():
    found = upload("device", (1, 1), GONE_AFTER_ONE, [[0.25, 0.5], [1.0, 2.0]])
    local = (0.25 * noise("edge/1", "noise-local", 0, 1, 1) + 0.5 * noise("edge/2", "noise-local", 0, 1, 1)) / 2
    middle = 2 - local
    torch.testing.assert_close(found, -2 + local + middle / 2 + 2.0 * noise("edge/2", "noise-global", 0, 2, 1))


def cloud(faults, edges=None, source="none", sizes=((10, 10), (10,)), weighting="uniform", noise=None, **options):
    facts = [
        SubnetFacts(f"e{number}", (PLACES[source],), np.array(records), np.full(len(records), 0.5), "poisson")
        for number, records in enumerate(sizes)
    ]
    held = np.array([len(records) for records in sizes])
    schedule = FixedSchedule(options.get("steps", 2), 0.5, "none", 1000, held, 1.0)
    aggregation_times = options.get("aggregation_times", AggregationTimes())
    planner = Planner(STREAMS, tuple(facts), aggregation_times, noise, Averaging(weighting=weighting), faults)
    return Cloud(START, planner, InProcessNodes(edges or {}), schedule)


def interval_where(made, holds):
    """The first interval whose faults are those that a test is about."""
    return next(plan for plan in map(made.plan, range(1000)) if holds(plan))


NODES = {"e0": edge_server(TARGETS, "none", name="e0"), "e1": edge_server([[8.0]], "none", name="e1")}


def test_a_subnet_whose_edge_server_is_offline_contributes_nothing_and_weights_renormalise():
    made = cloud(Faults(edge_outage=0.5), NODES)
    made.run_interval(interval_where(made, lambda plan: set(plan.subnets) == {"e1"}))
    assert made.model.item() == 6.0  # subnet 1 alone: its device goes 0 -> 4 -> 6


def test_an_interval_with_nobody_leaves_the_model_and_passes():
    made = cloud(Faults(edge_outage=1.0), NODES)
    plan = made.plan(0)
    assert (plan.subnets, plan.lost, plan.participants, plan.device_steps) == ({}, {}, 0, 0)
    made.run_interval(plan)
    assert (made.model.item(), made.next_slot) == (0.0, 2)
    assert list(made.releases(plan)) == []


def test_by_size_the_cloud_weighs_the_devices_of_which_anything_came():
    made = cloud(Faults(device_dropout=0.5), NODES, sizes=((30, 10), (40,)), weighting="by-size")
    plan = interval_where(
        made, lambda plan: len(plan.subnets) == 2 and plan.subnets["e0"].tasks.arriving.tolist() == [1]
    )
    assert plan.weights.tolist() == [0.2, 0.8]
    assert plan.participants == 2


def test_devices_that_all_vanish_before_an_upload_did_work_in_vain():
    made = cloud(Faults(device_dropout=1.0), NODES)  # no local aggregation: nobody is there at the end
    plan = interval_where(made, lambda plan: plan.device_steps > 0)
    assert plan.subnets == {}
    made.run_interval(plan)
    assert made.model.item() == 0.0


def test_the_cloud_knows_how_many_gradients_an_upload_holds():
    part = finishing([[2, 1], [3, 0]], subnet_plan((2, 3), 2, [[1.0, 1.0], [2.0, 2.0]]))
    facts = {"edge": SubnetFacts("edge", (PLACES["device"],), np.array([5, 5]), np.array([0.1, 0.1]), "poisson")}
    plan = IntervalPlan(0, 0, Decision(5, 0.5, np.array([2])), {"edge": part}, np.ones(1), np.ones(1))
    seen = observation(plan, START, [START], facts, GradientSumMechanism(CALIBRATION, ClippedBatches(1.0), "paper"))
    assert seen.mean_steps.tolist() == [1.5 + 3]
    assert seen.noise_variance.tolist() == pytest.approx([(1 + 1) / 4 + 2**2])


CALIBRATION = PaperCalibration(2.0, 1e-5, 2**0.5, 40, 10)
CLIP = 0.3
FAULTS = Faults(device_dropout=0.4, straggler_probability=0.4, edge_outage=0.1)


@given(
    interval=st.integers(0, 200),
    source=st.sampled_from(["edge", "device"]),
    rule=st.sampled_from(["paper", "tight"]),
    weighting=st.sampled_from(["uniform", "by-size"]),
)
def test_noise_covers_the_devices_really_averaged_and_every_release_is_a_row(interval, source, rule, weighting):
    """What the noise of each aggregation must be, and the rows about it, from the devices whose uploads arrive.

    A trusted edge server that sized its noise for the planned devices would leave a device of few with too little.
    """
    sizes = ((10, 20, 30, 40, 50), (10,), (7, 7))
    levels = GradientSumMechanism(CALIBRATION, ClippedBatches(CLIP), rule)
    made = cloud(
        FAULTS,
        source=source,
        sizes=sizes,
        weighting=weighting,
        noise=levels,
        steps=7,
        aggregation_times=AggregationTimes(every=3),
    )
    plan = made.plan(interval)
    if plan.subnets:
        assert plan.weights.sum() == pytest.approx(1)
    expected = {}
    for name, part in plan.subnets.items():
        records = np.array(sizes[int(name[1:])], dtype=float)
        for segment, (planned, slot) in enumerate([(3, 3), (3, 6), (1, 7)]):
            there = part.tasks.uploads[segment]
            found = part.aggregation(segment)
            assert found.rows.tolist() == np.flatnonzero(there).tolist()
            if not there.any():
                assert found.levels.size == 0
                continue
            share = (records if weighting == "by-size" else np.ones(len(records))) * there
            share = share[there] / share.sum()
            assert found.weights == pytest.approx(share)
            kind = "global" if slot == 7 else "local"
            own = 2 * 0.5 * (7 if rule == "paper" else planned) * CLIP
            ratio = CALIBRATION.noise_std(kind, 1.0, 1.0)
            noise_std = ratio * own * 0.5 * (share.max() if source == "edge" else np.ones(there.sum()))
            assert found.levels == pytest.approx(noise_std)
            # A release is protected by at least the noise multiplier that was calibrated, whoever is left.
            assert (
                found.levels
                >= ratio * 2 * 0.5 * found.steps * CLIP * 0.5 * (share if source == "edge" else 1) * (1 - 1e-12)
            ).all()
            whole = noise_std if source == "edge" else np.sqrt(((share * noise_std) ** 2).sum())
            for row, weight, steps in zip(found.rows, share, found.steps, strict=True):
                place = (slot, kind, name, int(row) + 1)
                expected[(*place, "cloud")] = (2 * 0.5 * steps * CLIP * weight, whole, steps)
                if source == "device":
                    expected[(*place, "edge")] = (2 * 0.5 * steps * CLIP, noise_std[0], steps)
    ledger = {}
    for row in made.releases(plan):
        assert (row.interval, row.sampling_rate) == (interval + 1, 0.5)
        for part in row.devices.split(","):
            first, _, last = part.partition("-")
            for device in range(int(first), int(last or first) + 1):
                if row.observer in ("edge", "cloud"):
                    ledger[(row.slot, row.kind, row.edge, device, row.observer)] = (
                        row.sensitivity,
                        row.noise_std,
                        row.steps,
                    )
    assert ledger.keys() == expected.keys()
    for key, values in expected.items():
        assert ledger[key] == pytest.approx(values), key


@given(st.lists(st.tuples(st.floats(0.01, 1), st.booleans()), min_size=1, max_size=8))
def test_renormalised_weights_keep_their_proportions_and_sum_to_one(devices):
    weights, there = (np.array(column) for column in zip(*devices, strict=True))
    found = present_shares(weights, there)
    assert (found[~there] == 0).all()
    if there.any():
        assert found.sum() == pytest.approx(1)
        assert found[there] / weights[there] == pytest.approx(1 / weights[there].sum())
    else:
        assert not found.any()
