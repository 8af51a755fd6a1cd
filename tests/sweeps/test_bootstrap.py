"""Means and their intervals, against scipy's bootstrap, every resample there is, and the law of the values."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from h2fdp.sweeps.bootstrap import CONFIDENCE, RESAMPLES, means_with_intervals


def of_all_resamples(values, level, method):
    """The level-quantile of the means of all n^n resamples, the next value below or above it."""
    means = [np.mean(draw) for draw in product(values, repeat=len(values))]
    return np.quantile(means, min(1, max(0, level)), method=method)


@pytest.mark.slow
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=4, unique=True))
def test_the_ends_are_quantiles_of_all_resamples(values):
    """At 2,000 resamples a level has a standard error of 0.0035; five of them fail once in two million."""
    found = means_with_intervals(np.array(values, dtype=float)[:, None])
    slack = 5 * np.sqrt(0.025 * 0.975 / RESAMPLES)
    for end, level in ((found.low[0], 0.025), (found.high[0], 0.975)):
        low = of_all_resamples(values, level - slack, "lower")
        high = of_all_resamples(values, level + slack, "higher")
        assert low - 1e-9 <= end <= high + 1e-9
    assert found.mean[0] == pytest.approx(np.mean(values))


def test_the_interval_is_scipys():
    values = np.random.default_rng(1).normal(0.8, 0.1, size=(12, 4))
    found = means_with_intervals(values)
    theirs = stats.bootstrap(
        (values,), np.mean, axis=0, method="percentile", n_resamples=20_000, rng=np.random.default_rng(2)
    ).confidence_interval
    spread = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(found.low - theirs.low) < 0.3 * spread).all()  # five standard errors of an end
    assert (np.abs(found.high - theirs.high) < 0.3 * spread).all()


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "expected"), [(5, 0.83), (10, 0.90), (20, 0.93)])
def test_how_often_the_mean_is_covered_is_what_is_said(runs, expected):
    """4,000 samples: five standard errors of the share, and half a point for rounding; fails once in two million.
    An interval of two thirds or one and a half of the width is told apart."""
    values = np.random.default_rng(runs).normal(size=(runs, 4000))
    found = means_with_intervals(values)
    allowed = 5 * np.sqrt(expected * (1 - expected) / 4000) + 0.005

    def covered(width):
        low, high = (found.mean + width * (end - found.mean) for end in (found.low, found.high))
        return np.mean((low <= 0) & (high >= 0))

    assert abs(covered(1) - expected) < allowed
    assert abs(covered(2 / 3) - expected) > allowed
    assert abs(covered(3 / 2) - expected) > allowed
    assert covered(1) < CONFIDENCE


def test_what_a_run_does_not_know_is_left_out():
    values = np.array([[1.0, np.nan, 3.0], [2.0, np.nan, np.nan], [3.0, np.nan, np.nan]])
    found = means_with_intervals(values)
    np.testing.assert_equal(found.mean, [2.0, np.nan, 3.0])
    np.testing.assert_equal(np.isnan(found.low), [False, True, True])


def test_equal_values_have_an_interval_of_no_width():
    found = means_with_intervals(np.full((3, 1), 0.1))
    assert found.mean[0] == pytest.approx(0.1)
    assert found.low[0] == found.high[0] == 0.1


def test_the_same_values_have_the_same_interval_wherever_they_stand():
    values = np.random.default_rng(3).normal(size=(6, 2))
    together, alone = means_with_intervals(values), means_with_intervals(values[:, 1:])
    assert together.low[1] == pytest.approx(alone.low[0], rel=1e-14)
    assert together.high[1] == pytest.approx(alone.high[0], rel=1e-14)
