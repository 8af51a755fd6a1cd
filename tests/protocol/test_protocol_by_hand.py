"""Equations (9)-(14) with numbers worked out by hand: two devices, one edge server, two steps on a quadratic.

F_1 = |w - 8|^2 / 2, F_2 = |w|^2 / 2, eta = 1/2, w(0) = 0. One step halves the distance to the target:
device 1 goes 0 -> 4 -> 6, device 2 stays at 0.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp.protocol import Averaging, Cloud, InProcessNodes, Planner, SubnetFacts
from h2fdp.schedules import AggregationTimes, FixedSchedule, Schedule
from tests.protocol.subnets import STREAMS, edge_server, noise, subnet_plan

TARGETS = [[8.0], [0.0]]
START = torch.tensor([0.0])


def test_without_local_aggregation_the_upload_is_the_mean_of_two_steps():
    # Delta_1 = 0 - 6, Delta_2 = 0: the average is -3.
    upload = edge_server(TARGETS, "none").run_interval(START, subnet_plan((2,), 2, [])).update
    assert upload.item() == -3.0


def test_a_local_aggregation_sends_both_devices_on_from_their_mean():
    # After slot 1 they hold 4 and 0, the edge broadcasts w_c = 2 (9), (13); then 2 -> 5 and 2 -> 1, the mean is 3.
    upload = edge_server(TARGETS, "none").run_interval(START, subnet_plan((1, 1), 2, [])).update
    assert upload.item() == -3.0


def test_weights_enter_every_local_aggregation():
    # Weights 3/4 and 1/4: w_c = 3 after slot 1; then 3 -> 5.5 and 3 -> 1.5, w = 3/4 * 5.5 + 1/4 * 1.5 = 4.5.
    weights = np.array([[0.75, 0.25]] * 2)
    plan = replace(subnet_plan((1, 1), 2, []), shares=weights[0], weights=weights, reach=weights)
    assert edge_server(TARGETS, "none").run_interval(START, plan).update.item() == -4.5


def test_a_trusted_edge_server_adds_one_noise_to_each_average():
    # (10), (11): w_c = 2 - n_loc; device 1: w_c -> (w_c + 8)/2, device 2: w_c -> w_c / 2.
    # The upload is everything accumulated: -2 + n_loc + mean(w_c - (w_c + 8)/2, w_c - w_c/2) + n_glob
    #                                     = -2 + n_loc + (w_c - 4) / 2 + n_glob.
    upload = edge_server(TARGETS, "edge").run_interval(START, subnet_plan((1, 1), 2, [[0.25], [0.5]])).update
    local = 0.25 * noise("edge", "noise-local", 0, 1, 1)
    final = 0.5 * noise("edge", "noise-global", 0, 2, 1)
    middle = 2 - local
    torch.testing.assert_close(upload, -2 + local + (middle - 4) / 2 + final)


def test_under_an_untrusted_edge_server_each_device_adds_its_own_noise():
    # (12): w_c = 2 - (n_1 + n_2) / 2 after the local aggregation.
    upload = (
        edge_server(TARGETS, "device").run_interval(START, subnet_plan((1, 1), 2, [[0.25, 0.5], [1.0, 2.0]])).update
    )
    local = (0.25 * noise("edge/1", "noise-local", 0, 1, 1) + 0.5 * noise("edge/2", "noise-local", 0, 1, 1)) / 2
    final = (1.0 * noise("edge/1", "noise-global", 0, 2, 1) + 2.0 * noise("edge/2", "noise-global", 0, 2, 1)) / 2
    middle = 2 - local
    torch.testing.assert_close(upload, -2 + local + (middle - 4) / 2 + final)


def _cloud(edges, sizes, weighting="uniform", share=1.0, aggregation_times=AggregationTimes()):  # noqa: B008 (a frozen value)
    facts = [
        SubnetFacts(f"e{number}", (None,), np.array(records), np.full(len(records), 0.5), "poisson")
        for number, records in enumerate(sizes)
    ]
    schedule = FixedSchedule(2, 0.5, "none", 1000, np.array([len(records) for records in sizes]), share)
    planner = Planner(STREAMS, tuple(facts), aggregation_times, None, Averaging(weighting=weighting))
    return Cloud(START, planner, InProcessNodes(edges), schedule)


def test_the_cloud_averages_subnets_with_equal_weight_whatever_their_size():
    # Subnet 0 holds both devices (average -3), subnet 1 one device with target 8 (Delta = -6): w = 0 + (3 + 6) / 2.
    cloud = _cloud(
        {"e0": edge_server(TARGETS, "none", name="e0"), "e1": edge_server([[8.0]], "none", name="e1")}, [[10, 10], [10]]
    )
    cloud.run_interval(cloud.plan(0))
    assert cloud.model.item() == 4.5
    assert cloud.next_slot == 2


def test_by_size_weights_follow_the_records_of_devices_and_subnets():
    # Subnet 0: records 30 and 10, average -(3/4 * 6) = -4.5; subnet 1: 40 records, -6; equal masses of 40.
    cloud = _cloud(
        {"e0": edge_server(TARGETS, "none", name="e0"), "e1": edge_server([[8.0]], "none", name="e1")},
        [[30, 10], [40]],
        weighting="by-size",
    )
    cloud.run_interval(cloud.plan(0))
    assert cloud.model.item() == pytest.approx(5.25)


def test_a_subnet_without_active_devices_contributes_nothing_and_weights_renormalise():
    cloud = _cloud(
        {"e0": edge_server(TARGETS, "none", name="e0"), "e1": edge_server([[8.0]], "none", name="e1")}, [[10, 10], [10]]
    )
    idle = cloud._schedule.decide(0, 0)
    cloud._schedule = type(
        "Idle", (Schedule,), {"observes": False, "decide": lambda self, k, slot: type(idle)(2, 0.5, np.array([0, 1]))}
    )()
    cloud.run_interval(cloud.plan(0))
    assert cloud.model.item() == 6.0


def test_participants_are_drawn_anew_in_each_interval_and_uniformly():
    """Each of 6 devices takes part in half of 400 intervals: chi-square at an error rate of 1e-6."""
    from scipy import stats

    cloud = _cloud({}, [[10] * 6], share=0.5)
    counts = np.zeros(6)
    for interval in range(400):
        rows = cloud.plan(interval).subnets["e0"].rows
        assert len(rows) == 3
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
    # Draws without replacement: the statistic is chi-square(5) after the finite-population factor (6 - 3) / (6 - 1).
    statistic = ((counts - 200) ** 2 / 200).sum() / (3 / 5)
    assert stats.chi2.sf(statistic, 5) > 1e-6
