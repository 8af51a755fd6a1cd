"""The bound of Steinke, Nasr and Jagielski against brute force, closed forms and the coverage that it promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from h2fdp.audit.run_audit import epsilon_lower_bound, guess, guesses_planned


def chance_by_hand(epsilon, right, guesses, canaries, delta):
    share = 1 / (1 + math.exp(-epsilon))
    pmf = [math.comb(guesses, k) * share**k * (1 - share) ** (guesses - k) for k in range(guesses + 1)]
    windows = [sum(pmf[right - i : right]) / i for i in range(1, right + 1)]
    return sum(pmf[right:]) + 2 * canaries * delta * max(windows, default=0.0)


def bound_by_hand(right, guesses, canaries, delta, confidence):
    grid = np.arange(0, 8, 0.005)
    good = [e for e in grid if chance_by_hand(e, right, guesses, canaries, delta) < 1 - confidence]
    return max(good, default=0.0)


@pytest.mark.slow
@given(
    st.integers(1, 60).flatmap(lambda r: st.tuples(st.integers(0, r), st.just(r), st.integers(r, 300))),
    st.sampled_from([0.0, 1e-5, 1e-3, 1e-2]),
    st.sampled_from([0.9, 0.95, 0.9975]),
)
def test_it_is_the_supremum_of_a_grid(counts, delta, confidence):
    found = epsilon_lower_bound(*counts, delta, confidence)
    assert found == pytest.approx(bound_by_hand(*counts, delta, confidence), abs=0.006)


def test_all_right_has_a_closed_form():
    share = 0.05 ** (1 / 40)
    assert epsilon_lower_bound(40, 40, 40, delta=0.0) == pytest.approx(math.log(share / (1 - share)))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_randomised_response_is_exceeded_as_rarely_as_promised_and_not_much_more_rarely(epsilon):
    """Its guesses are right with exactly the largest share that pure epsilon allows: the worst case of the theorem."""
    counts = np.arange(201)
    exceeded = np.array([epsilon_lower_bound(int(v), 200, 200, 0.0) > epsilon for v in counts])
    chance = binom.pmf(counts, 200, 1 / (1 + math.exp(-epsilon)))[exceeded].sum()
    assert 0.02 < chance <= 0.05


@pytest.mark.slow
def test_an_ideal_audit_of_a_gaussian_of_epsilon_1_gives_about_a_quarter_with_1000_canaries():
    delta, random = 1e-5, np.random.default_rng(0)
    shift = brentq(lambda mu: norm.cdf(-1 / mu + mu / 2) - math.e * norm.cdf(-1 / mu - mu / 2) - delta, 0.1, 1.0)
    found = []
    for _ in range(200):
        included = random.random(1000) < 0.5
        called = guess(random.normal(size=1000) + shift * included, guesses_planned(1000))
        right = int(np.sum(called == np.where(included, 1, -1)))
        found.append(epsilon_lower_bound(right, guesses_planned(1000), 1000, delta))
    assert 0.15 < np.mean(found) < 0.3
