"""Plans of edge servers in turns, against brute force and against sums over simulated runs."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.schedules.aggregation_times import decayed
from h2fdp.schedules.turns import TurnsSetting, cheapest, most_turns, next_turn, way, within_budget


@given(st.integers(1, 6), st.data())
@settings(max_examples=25)
def test_the_next_turn_saves_most_of_all_that_keep_turns_equal(servers, data):
    """Equal: nobody is taken who has had more turns than one who is left out."""
    taken = np.array(data.draw(st.lists(st.integers(0, 2), min_size=servers, max_size=6)))
    saving = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(taken), max_size=len(taken))))
    allowed = [
        rows
        for rows in itertools.combinations(range(len(taken)), servers)
        if all(taken[row] <= taken[other] for row in rows for other in set(range(len(taken))) - set(rows))
    ]
    found = next_turn(taken, servers, saving)
    assert tuple(found) in allowed
    assert saving[found].sum() == pytest.approx(max(saving[list(rows)].sum() for rows in allowed))


@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_turns_never_differ_by_more_than_one_and_are_as_many_as_planned(servers, intervals, seed):
    random, taken = np.random.default_rng(seed), np.zeros(8, dtype=int)
    for _ in range(intervals):
        taken[next_turn(taken, servers, random.normal(size=8))] += 1
        assert taken.max() - taken.min() <= 1
    assert taken.max() == most_turns(intervals, servers, 8)


def setting(**changes):
    defaults: dict[str, int | float | str | Callable] = {
        "intervals": 12,
        "tau": 5,
        "tau_max": 12,
        "step_size": 0.5,
        "decay": "linear",
        "servers": 2,
        "of": 4,
        "cost": lambda tau, intervals: {"joules": 1.0 * intervals, "seconds": 2.0 * intervals, "gco2": 3.0 * intervals},
        "noise": lambda tau: tau * np.array([1.0, 2.0, 0.5, 1.5]),
        "releases": lambda tau: tau,
    }
    return TurnsSetting(**{**defaults, **changes})


@pytest.mark.parametrize("decay", ["linear", "sqrt", "none"])
def test_every_plan_goes_the_way_of_the_file_in_whole_rounds(decay):
    found = setting(decay=decay).candidates()
    assert len(found) > 2
    for plan in found:
        assert way(plan.step_size, decay, plan.intervals, plan.tau) == pytest.approx(way(0.5, decay, 12, 5))
        assert plan.step_size <= 0.5 * (1 + 1e-12)
        assert plan.tau <= 12
        assert plan.intervals * 2 % 4 == 0


@pytest.mark.parametrize("decay", ["linear", "none"])
def test_noise_is_that_of_a_run_whose_devices_add_what_their_turns_ask_for(decay):
    """A noise vector for each subnet and interval, of a variance that grows with the turns and steps that it is for."""
    random, parts = np.random.default_rng(3), np.array([1.0, 2.0, 0.5, 1.5])
    for plan in setting(decay=decay).candidates():
        draws = 4000
        total, taken = np.zeros((draws, 8)), np.zeros((draws, 4), dtype=int)
        for interval in range(plan.intervals):
            eta = decayed(plan.step_size, decay, interval, plan.intervals)
            rows = np.argsort(taken + random.random((draws, 4)), axis=1)[:, :2]
            np.put_along_axis(taken, rows, np.take_along_axis(taken, rows, axis=1) + 1, axis=1)
            # alone among all four a subnet has a weight of 1/4, among two of 1/2: parts * 4^2 / 2^2
            deviation = eta * 2 * np.sqrt(plan.tau * parts[rows] * plan.turns * plan.tau)
            total += (deviation[:, :, None] * random.standard_normal((draws, 2, 8))).sum(axis=1)
        measured = (total**2).mean() / way(0.5, decay, 12, 5) ** 2
        assert measured == pytest.approx(plan.noise**2, rel=0.05)  # 5 standard deviations of 32,000 squares are 0.04


def test_the_best_plans_are_those_of_brute_force():
    plans = setting().candidates()
    weighed = {id(each): (each.costs["joules"] + each.costs["seconds"] / 2) * each.noise**2 for each in plans}
    assert cheapest(plans, 1.0, 0.5) == min(plans, key=lambda each: weighed[id(each)])
    least = min(each.noise for each in plans if each.costs["joules"] <= 10)
    near = [each for each in plans if each.costs["joules"] <= 10 and each.noise <= 1.1 * least]
    assert within_budget(plans, {"joules": 10}) == max(near, key=lambda each: each.intervals)
    assert within_budget(plans, {"seconds": 1.0}) is None
    assert within_budget(plans, {"gco2": 1.0}) is None
    assert cheapest([], 1.0, 0.0) is None
