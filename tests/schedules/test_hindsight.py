"""The cheapest turns in hindsight: against every choice there is, and against those who choose online."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.schedules.hindsight import cheapest_turns
from h2fdp.schedules.turns import next_turn


def of_all_choices(cost, turns, servers):
    """The least cost of all choices, one by one."""
    intervals, count = cost.shape
    subsets = list(itertools.combinations(range(count), servers))
    best = np.inf
    for choice in itertools.product(subsets, repeat=intervals):
        if np.array_equal(np.bincount(np.concatenate(choice), minlength=count), turns):
            best = min(best, sum(cost[interval, list(who)].sum() for interval, who in enumerate(choice)))
    return best


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.data())
def test_no_choice_costs_less(seed, intervals, count, data):
    servers = data.draw(st.integers(1, count))
    random = np.random.default_rng(seed)
    cost = random.exponential(size=(intervals, count))
    someones = [random.choice(count, servers, replace=False) for _ in range(intervals)]
    turns = np.bincount(np.concatenate(someones), minlength=count)
    chosen = cheapest_turns(cost, turns, servers)
    np.testing.assert_array_equal(chosen.sum(axis=1), servers)
    np.testing.assert_array_equal(chosen.sum(axis=0), turns)
    assert cost[chosen].sum() == pytest.approx(of_all_choices(cost, turns, servers))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 12), st.data())
def test_it_costs_no_more_than_turns_chosen_online_and_no_less_than_the_cheapest_of_each_interval(
    seed, intervals, count, data
):
    servers = data.draw(st.integers(1, count))
    random = np.random.default_rng(seed)
    cost = random.lognormal(sigma=1.5, size=(intervals, count))
    taken, online = np.zeros(count, int), 0.0
    for drawn in cost:
        who = next_turn(taken, servers, cost.mean(axis=0) - drawn)
        taken[who] += 1
        online += drawn[who].sum()
    best = cost[cheapest_turns(cost, taken, servers)].sum()
    assert np.sort(cost, axis=1)[:, :servers].sum() <= best * (1 + 1e-9)
    assert best <= online * (1 + 1e-9)


@pytest.mark.parametrize(
    ("turns", "servers"), [([1, 1], 2), ([3, 0], 1), ([2, 2], 3)], ids=["too few", "too often", "too many at once"]
)
def test_turns_that_do_not_fit_are_refused(turns, servers):
    with pytest.raises(ValueError, match="no room"):
        cheapest_turns(np.ones((2, 2)), np.array(turns), servers)
