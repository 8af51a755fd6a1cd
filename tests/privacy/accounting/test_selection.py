"""The best of a random number of trials: the theorem against exact divergences; what the budget leaves to a trial."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ORDERS, epsilon_at_order
from h2fdp.privacy.accounting.selection import TrialNumbers, budget_of_best


def generating(law, x):
    """E[x^K], in closed form (Papernot and Steinke 2022, Appendix)."""
    return (1 / (1 - (1 - law.success) * x) - 1) / (1 / law.success - 1)


def of_best(trial, law):
    """The distribution of the best of K draws, outcomes by rising score."""
    return np.diff(generating(law, np.concatenate([[0.0], np.cumsum(trial)])))


def divergence(one, other, order):
    return math.log(np.sum(one**order * other ** (1 - order))) / (order - 1)


def larger(one, other, order):
    return max(divergence(one, other, order), divergence(other, one, order))


def test_the_numbers_of_trials_have_their_distribution_and_mean():
    law = TrialNumbers.of_mean(5)
    number, chances = np.arange(1, 3001), law.probabilities(3000)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert number @ chances == pytest.approx(5, rel=1e-9)
    assert chances @ 0.7**number == pytest.approx(generating(law, 0.7), rel=1e-9)
    drawn = [law.draw(np.random.default_rng(seed)) for seed in range(4000)]
    seen = np.bincount(drawn, minlength=6)[1:5]
    spread = np.sqrt(4000 * chances[:4] * (1 - chances[:4]))
    assert (np.abs(seen - 4000 * chances[:4]) < 5.5 * spread).all()  # by chance once in 3 million


weights = st.lists(st.floats(0.02, 1), min_size=4, max_size=4)


@settings(max_examples=60)
@given(weights, weights, st.floats(1.2, 50), st.floats(1.1, 30), st.floats(1.1, 30))
@example([1.0, 1, 1, 0.05], [1.0, 1, 1, 0.5], 40.0, 8.0, 3.0)
def test_no_two_neighbours_are_further_apart_than_the_theorem_says(one, other, mean, order, second):
    first, neighbour = (np.array(each) / sum(each) for each in (one, other))
    law = TrialNumbers.of_mean(mean)
    exact = larger(of_best(first, law), of_best(neighbour, law), order)
    bound = law.divergence(order, larger(first, neighbour, order), second, larger(first, neighbour, second))
    assert exact <= bound * (1 + 1e-9)


def test_the_best_of_many_reveals_more_than_a_trial():
    trial, neighbour = np.array([0.98, 0.02]), np.array([0.99, 0.01])
    law = TrialNumbers.of_mean(30)
    best = larger(of_best(trial, law), of_best(neighbour, law), 8.0)
    assert best > 1.4 * larger(trial, neighbour, 8.0)  # so that the theorem is needed


def test_pure_privacy_is_that_of_liu_and_talwar():
    law = TrialNumbers.of_mean(30)  # a geometric number costs three times a trial, by their Theorem 3.2
    assert law.divergence(1e9, 0.5, 1e9, 0.5) == pytest.approx(3 * 0.5, abs=1e-6)


def test_all_of_a_search_meets_its_epsilon_and_hardly_less():
    law = TrialNumbers.of_mean(30)
    budget = budget_of_best(law, 1.0, 1e-5)
    first, second = budget.bounds.values()
    total = law.divergence(budget.order, first, budget.other_order, second) + first
    place = ORDERS.tolist().index(budget.order)
    assert epsilon_at_order(np.full(ORDERS.size, total), place, 1e-5) == pytest.approx(1.0, abs=1e-9)


def test_the_noise_of_scores_takes_the_bounds_and_no_more():
    budget = budget_of_best(TrialNumbers.of_mean(10), 1.0, 1e-5)
    taken = [order / (2 * budget.score_deviation**2) for order in budget.bounds]  # of a count that moves by 1
    assert taken == pytest.approx(list(budget.bounds.values()))
