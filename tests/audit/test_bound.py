"""The bounds on mu: linear programmes, exact coverage, a mechanism that gives all away at once, planted errors."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.stats import binom, norm

from h2fdp.audit.run_audit import guess, guesses_planned, mu_lower_bound, mu_of_independent, refuted
from h2fdp.privacy.accounting.accountants import gaussian_epsilon

DELTA, CANARIES = 1e-5, 1000


@cache
def mu_of(epsilon):
    return brentq(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, 0.01, 8)


def largest_chance(mu, right, guesses, canaries, delta):
    """Of at least so many right guesses, over all laws of their number that the trade-off allows: a linear programme.

    For each k: sum_(i >= k) i/N p_i <= power(sum_(i >= k-1) (r-i)/N p_i); the power, which is concave, by tangents.
    """
    number = np.arange(guesses + 1)
    rows, bounds = [], []
    for false in norm.cdf(np.linspace(-7, 7, 1401)):
        value = norm.cdf(norm.ppf(false) + mu)
        slope = math.exp(-mu * norm.ppf(false) - mu**2 / 2)
        for least in range(1, guesses + 1):
            hits = np.where(number >= least, number, 0) / canaries
            misses = np.where(number >= least - 1, guesses - number, 0) / canaries
            rows.append(hits - slope * misses)
            bounds.append(value + delta - slope * false)
    found = linprog(
        -(number >= right).astype(float), A_ub=np.array(rows), b_ub=bounds, A_eq=np.ones((1, guesses + 1)), b_eq=[1]
    )
    return -found.fun


@pytest.mark.parametrize(
    ("mu", "right", "guesses", "canaries", "delta"),
    [(0.5, 6, 8, 8, 0.0), (1.0, 7, 8, 40, 1e-3), (0.3, 5, 5, 20, 0.0), (1.5, 9, 10, 12, 1e-2), (0.8, 8, 8, 8, 0.0)],
)
def test_as_many_right_guesses_are_refuted_just_where_they_are_less_probable_than_the_doubt(
    mu, right, guesses, canaries, delta
):
    chance = largest_chance(mu, right, guesses, canaries, delta)
    assert 1e-3 < chance < 1
    assert refuted(mu, right, guesses, canaries, delta, doubt=1.01 * chance)
    assert not refuted(mu, right, guesses, canaries, delta, doubt=0.99 * chance)


def test_the_bound_is_the_mu_from_which_on_nothing_is_refuted():
    bound = mu_lower_bound(170, 200, 1000, DELTA)
    assert refuted(0.999 * bound, 170, 200, 1000, DELTA, 0.05)
    assert not refuted(1.001 * bound, 170, 200, 1000, DELTA, 0.05)
    assert mu_lower_bound(171, 200, 1000, DELTA) > bound > mu_lower_bound(170, 200, 1000, DELTA, confidence=0.99)
    assert bound > mu_lower_bound(170, 200, 1000, 1e-3)
    assert mu_lower_bound(100, 200, 1000, DELTA) == mu_lower_bound(0, 200, 1000, DELTA) == 0.0
    assert mu_of_independent(0, 1000, DELTA) == mu_of_independent(510, 1000, DELTA) == 0.0


@pytest.mark.parametrize("epsilon", [1, 3, 8])
def test_of_independent_canaries_the_bound_is_above_the_truth_as_rarely_as_promised_and_not_much_more_rarely(epsilon):
    """Exactly: a Gaussian's guesses are right with the largest chance that its mu allows."""
    counts = np.arange(CANARIES + 1)
    above = np.array([mu_of_independent(int(right), CANARIES, 0.0) > mu_of(epsilon) for right in counts])
    chance = binom.pmf(counts, CANARIES, norm.cdf(mu_of(epsilon) / 2))[above].sum()
    assert 0.03 < chance <= 0.05


def test_a_mechanism_that_sometimes_gives_all_away_is_kept_by_the_bound_for_any_mechanism_alone():
    """With 8 % each coin is shown, rightly with 99 %, else none: its errors, and so its mu, are known exactly."""
    together, share = 0.08, 0.99
    mu = norm.ppf(together * share) - norm.ppf(together * (1 - share))
    rights = np.arange(980, 1000)
    chances = together * binom.pmf(rights, CANARIES, share)
    known = np.array([refuted(mu, int(right), CANARIES, CANARIES, 0.0, 0.05) for right in rights])
    alone = np.array([mu_of_independent(int(right), CANARIES, 0.0) > mu for right in rights])
    assert chances[known].sum() <= 0.05 < chances[alone].sum()


def simulated(epsilon, noise=1.0, times=200, seed=0):
    """(2, times) both bounds on mu by ideal canaries of this epsilon, with so much of the noise."""
    rng, found = np.random.default_rng(seed), []
    guesses = guesses_planned(CANARIES)
    for _ in range(times):
        coins = rng.random(CANARIES) < 0.5
        scores = rng.normal(size=CANARIES) + mu_of(epsilon) / noise * (coins - 0.5)
        right = int(np.sum(guess(scores, guesses) == np.where(coins, 1, -1)))
        every = int(np.sum((scores > 0) == coins))
        found.append((mu_lower_bound(right, guesses, CANARIES, DELTA), mu_of_independent(every, CANARIES, DELTA)))
    return np.array(found).T


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "known", "alone"), [(1, 0.28, 0.40), (3, 1.5, 2.2), (8, 4.5, 6.9)])
def test_in_200_simulations_at_most_15_are_above_the_truth_and_much_of_it_is_found(epsilon, known, alone):
    """The bound of Steinke, Nasr and Jagielski finds 0.23, 1.0 and 2.9."""
    for bounds, least in zip(simulated(epsilon), (known, alone), strict=True):
        assert np.sum(bounds > mu_of(epsilon)) <= 15
        assert np.mean([gaussian_epsilon(max(mu, 1e-9), DELTA) for mu in bounds]) > least


@pytest.mark.parametrize(("epsilon", "found"), [(1, 5), (3, 20), (8, 20)])
def test_two_thirds_of_the_noise_are_found(epsilon, found):
    _, alone = simulated(epsilon, noise=2 / 3, times=20)
    assert np.sum(alone > mu_of(epsilon)) >= found
