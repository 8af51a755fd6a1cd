"""Exact discrete Gaussian noise, against its probabilities written out."""

import numpy as np
import pytest
from scipy import stats

from h2fdp.privacy.modular_sums import LARGEST_STD, _bernoulli_exp, discrete_gaussian

ERROR_RATE = 1e-6


def stream(number=1):
    return np.random.Generator(np.random.Philox(key=number))


def probabilities(std, reach):
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-(places**2) / (2 * std**2))
    return weights / weights.sum()


def accepts(drawn, std, reach):
    """Chi-square at an error rate of 1e-6, the tails beyond `reach` as one class each."""
    middle = 40 * reach
    expected = probabilities(std, middle)
    inner = expected[middle - reach : middle + reach + 1]
    classes = np.array([expected[: middle - reach].sum(), *inner, expected[middle + reach + 1 :].sum()])
    places = np.clip(drawn, -reach - 1, reach + 1) + reach + 1
    found = np.bincount(places, minlength=len(classes))
    return stats.chisquare(found, classes * len(drawn)).pvalue > ERROR_RATE


@pytest.mark.parametrize("std", [1, 2, 4, 13])
def test_draws_have_the_law_and_no_other(std):
    drawn = discrete_gaussian(std, 200_000, stream())
    assert accepts(drawn, std, 3 * std)
    assert not accepts(drawn, 1.03 * std, 3 * std)
    assert not accepts(drawn, 0.97 * std, 3 * std)


@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (0.98, False), (1.02, False)])
@pytest.mark.parametrize("std", [100, LARGEST_STD])
def test_wide_laws_have_the_variance_of_the_continuous_one(std, factor, accepted):
    """For sigma of a few cells and more the variance is sigma^2 but for 1e-10 (Canonne et al. 2020, Fact 18)."""
    count = 400_000
    drawn = discrete_gaussian(std, count, stream(2)).astype(np.float64)
    low, high = stats.chi2.ppf([ERROR_RATE / 2, 1 - ERROR_RATE / 2], count)
    assert bool(low < (drawn**2).sum() / (factor * std) ** 2 < high) is accepted
    assert abs(drawn.mean()) < 5 * std / np.sqrt(count)


def test_a_stream_gives_one_vector_whatever_was_drawn_before():
    whole = discrete_gaussian(20, 1000, stream(3))
    assert (discrete_gaussian(20, 1000, stream(3)) == whole).all()
    assert (discrete_gaussian(20, 1000, stream(4)) != whole).any()


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 5), (1, 3), (7, 7), (9, 4), (30, 7)])
def test_exponential_coins_fall_as_often_as_they_should(numerator, denominator):
    count = 200_000
    coins = _bernoulli_exp(np.full(count, numerator), denominator, stream(5))
    chance = np.exp(-numerator / denominator)
    assert stats.binomtest(int(coins.sum()), count, chance).pvalue > ERROR_RATE
