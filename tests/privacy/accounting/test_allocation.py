"""Random allocation: one of t batches holds a record, which chose it by itself.

Oracles: the closed form of one Gaussian; for two batches one integral of a closed form (the price of an option on a
log-normal number); draws; the moments of sums of log-normal numbers; and the two-sided bounds of PLD_accounting 2.0, by
the authors of the method (Feldman and Shenfeld), in nine settings.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, ReleaseType, rdp_of
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.privacy.accounting.allocation import Allocation
from h2fdp.privacy.accounting.loss_composition import converged_epsilon
from h2fdp.privacy.releases import Release, release_of


def epsilon(batches, noise, delta, epochs=1, accountant="pld"):
    release = ReleaseType(noise, 1, 1 / batches, "allocated")
    return ACCOUNTANTS[accountant].epsilon({release: epochs}, delta)


def exceeding(level, shift):
    """E (Y - level)_+ of Y = exp(shift g - shift^2 / 2): Black and Scholes 1973."""
    high = -np.log(np.maximum(level, 1e-300)) / shift + shift / 2
    return np.where(level <= 0, 1 - level, norm.cdf(high) - level * norm.cdf(high - shift))


def delta_of_two(epsilon, noise):
    """Of two batches: the larger of E_Q (M - e^epsilon)_+ and E_Q (1 - e^epsilon M)_+, M the mean of two ratios.

    By 200,000 points of one ratio, and the closed form of the other.
    """
    shift, points = 1 / noise, np.linspace(-10, 10 + 1 / noise, 200_001)
    ratio, weight = np.exp(shift * points - shift**2 / 2), norm.pdf(points) * (points[1] - points[0])
    removed = exceeding(2 * math.exp(epsilon) - ratio, shift) / 2
    level = 2 * math.exp(-epsilon) - ratio  # (level - Y)_+ = (Y - level)_+ - 1 + level
    added = math.exp(epsilon) / 2 * np.maximum(exceeding(level, shift) - 1 + level, 0)
    return max(float(weight @ removed), float(weight @ added))


@pytest.mark.parametrize(("noise", "delta"), [(0.6, 1e-3), (1.0, 1e-6), (3.0, 1e-8)])
def test_two_batches_have_the_epsilon_of_an_integral(noise, delta):
    exact = brentq(lambda each: math.log(delta_of_two(each, noise) / delta), 1e-3, 20, xtol=1e-9)
    assert exact <= epsilon(2, noise, delta) <= exact * 1.002


@pytest.mark.parametrize(("noise", "delta"), [(0.5, 1e-5), (2.0, 1e-2), (2.0, 1e-12)])
def test_one_batch_is_a_gaussian(noise, delta):
    exact = gaussian_epsilon(1 / noise, delta)
    assert epsilon(1, noise, delta) == pytest.approx(exact, rel=1e-3)
    alone = converged_epsilon((((Allocation(1), noise), 1),), delta)
    assert exact * (1 - 1e-9) <= alone <= exact * 1.002


# z, t, epochs, delta: lower and upper bound of PLD_accounting 2.0, `gaussian_allocation_epsilon_range`.
PUBLISHED = {
    (2.12, 38, 10, 1e-5): (0.932231, 0.975628),
    (1.0, 10, 1, 1e-6): (2.631760, 2.669777),
    (0.6, 100, 5, 1e-5): (5.230471, 5.306677),
    (3.0, 20, 40, 1e-8): (2.577739, 2.657342),
    (0.8, 64, 20, 1e-5): (5.143909, 5.220400),
    (1.0, 300, 1, 1e-12): (1.715694, 1.746519),
    (2.0, 7, 3, 1e-2): (0.550550, 0.573796),
    (1.2, 2, 4, 1e-4): (5.175462, 5.269472),
    (5.0, 5, 100, 1e-10): (5.802262, 5.888534),
}


@pytest.mark.parametrize("setting", PUBLISHED)
def test_the_account_lies_between_the_bounds_of_the_authors_of_the_method(setting):
    noise, batches, epochs, delta = setting
    lower, upper = PUBLISHED[setting]
    assert lower <= epsilon(batches, noise, delta, epochs) <= upper


@pytest.mark.parametrize(("batches", "noise", "epochs"), [(5, 1.0, 2), (8, 0.7, 3)])
def test_draws_exceed_the_epsilon_with_chance_delta_and_a_smaller_one_more_often(batches, noise, epochs):
    """delta(epsilon) by 300,000 draws of all outputs under P and under Q; error rate 1e-6 (4.9 deviations)."""
    rng, count, delta = np.random.default_rng(batches), 300_000, 1e-2
    found = epsilon(batches, noise, delta, epochs)
    exceeded = {}
    for world in (1, 0):
        losses = np.zeros(count)
        for _ in range(epochs):
            outputs = noise * rng.normal(size=(count, batches))
            outputs[np.arange(count), rng.integers(batches, size=count)] += world
            losses += np.log(np.exp((outputs - 0.5) / noise**2).mean(axis=1))
        parts = [np.maximum(0, 1 - np.exp(each - (losses if world else -losses))) for each in (found, 0.97 * found)]
        exceeded[world] = [(each.mean(), 4.9 * each.std() / math.sqrt(count)) for each in parts]
    largest = [max(both, key=lambda each: each[0]) for both in zip(*exceeded.values(), strict=True)]
    assert largest[0][0] - largest[0][1] <= delta
    assert largest[1][0] + largest[1][1] >= delta
    assert largest[1][0] > largest[0][0]


def moment(batches, noise, order):
    """log E M^a for a of 2 and 3, by hand: powers of sums of independent numbers of moments exp(k (k - 1) / 2 z^2)."""
    second, third = (math.exp(k * (k - 1) / (2 * noise**2)) for k in (2, 3))
    t = batches
    if order == 2:
        return math.log((t * second + t * (t - 1)) / t**2)
    return math.log((t * third + 3 * t * (t - 1) * second + t * (t - 1) * (t - 2)) / t**3)


@pytest.mark.parametrize(("batches", "noise"), [(2, 0.8), (13, 1.0), (200, 0.5)])
def test_divergences_are_those_of_moments_and_cover_both_directions(batches, noise):
    pair = Allocation(batches)
    removed = [moment(batches, noise, order) / (order - 1) for order in (2, 3)]
    found = pair.divergence(noise, np.array([2, 3]))
    added = [(1 + (order - 1) / batches) / (2 * noise**2) for order in (2, 3)]
    plain = [order / (2 * noise**2) for order in (2, 3)]
    expected = [min(max(both), most) for *both, most in zip(removed, added, plain, strict=True)]
    assert found == pytest.approx(expected, rel=1e-9)
    release = ReleaseType(noise, 1, 1 / batches, "allocated")
    assert (rdp_of(release) <= ORDERS / (2 * noise**2) * (1 + 1e-8)).all()
    assert epsilon(batches, noise, 1e-5) <= epsilon(batches, noise, 1e-5, accountant="rdp")


def test_the_divergence_of_q_from_p_is_below_its_bound():
    """By one integral over each of two ratios (Gauss and Hermite, 80 points)."""
    noise, order = 0.9, 4
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    ratio = np.exp(points / noise - 1 / (2 * noise**2))
    mean = (ratio[:, None] + ratio) / 2
    exact = math.log(float((mean ** (1 - order) * np.outer(weights, weights)).sum())) / (order - 1)
    assert exact <= float(Allocation(2).divergence(noise, np.array([order]))[0])


def test_more_batches_hide_more_and_never_less_than_none():
    found = [epsilon(batches, 1.3, 1e-6, epochs=4) for batches in (1, 2, 3, 7, 64, 65, 127, 130, 1000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(gaussian_epsilon(math.sqrt(4) / 1.3, 1e-6), rel=1e-3)
    assert epsilon(40, 0.04, 1e-6) <= gaussian_epsilon(1 / 0.04, 1e-6) * 1.001  # ratios would overflow
    assert epsilon(40, 2.0, 1e-100) <= gaussian_epsilon(1 / 2.0, 1e-100) * 1.001  # beyond what is followed
    for delta in (1e-15, 1e-30, 1e-40):
        assert epsilon(64, 0.5, delta, epochs=3) <= epsilon(64, 0.5, delta, epochs=3, accountant="rdp") * 1.0005
    replaced = ReleaseType(1.3, 1, 1 / 40, "allocated", replaced=True)
    assert ACCOUNTANTS["pld"].epsilon({replaced: 1}, 1e-6) == pytest.approx(gaussian_epsilon(1 / 1.3, 1e-6), rel=1e-3)


def test_a_row_of_an_epoch_that_is_not_whole_batches_is_refused():
    row = Release(1, 1, "step", "a", "1", "edge", 1.0, 2.0, 1, 0.3, "allocated", "record").as_row()
    with pytest.raises(UserError, match=r"expected a rate of 1 / t, found 0\.3"):
        release_of(row, "privacy.jsonl:1", None)
    assert release_of({**row, "sampling_rate": 1 / 3}, "privacy.jsonl:1", None).sampling_rate == 1 / 3


def test_ten_epochs_need_a_sixth_of_the_noise_of_ten_releases():
    """1,200 records in batches of 32, epsilon 1: by the closed form of ten Gaussians 11.8."""
    law = NormalDist()

    def spent(mu):
        return law.cdf(mu / 2 - 1 / mu) - math.e * law.cdf(-mu / 2 - 1 / mu)

    ten = math.sqrt(10) / brentq(lambda mu: spent(mu) - 1e-5, 1e-3, 10)
    assert ten == pytest.approx(11.8, abs=0.01)
    assert epsilon(38, ten / 5.7, 1e-5, epochs=10) < 1 < epsilon(38, ten / 5.9, 1e-5, epochs=10)
