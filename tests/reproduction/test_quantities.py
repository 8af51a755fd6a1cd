"""Comparisons against hand calculation, resampling by hand, and what their names promise."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from h2fdp.reproduction.quantities import COMPARISONS, find
from h2fdp.sweeps.bootstrap import means_with_intervals

SEEDS = np.array([[70.0, 60.0, 55.0], [72.0, 61.0, 57.0], [68.0, 62.0, 53.0]])  # three points, means 70, 61, 55
ladders = arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(2, 5)), elements=st.floats(1, 100))


@pytest.mark.parametrize(
    ("name", "size", "direction"),
    [
        ("difference", 15, 15),
        ("least rise", -9, -15),
        ("least fall", 6, 15),
        ("gain ratio", 15 / 6, 6),
        ("saving", 100 * (1 - 70 / 55), 100 * (1 - 70 / 55)),
    ],
)
def test_values_are_those_worked_out_by_hand(name, size, direction):
    found = find(COMPARISONS[name], [SEEDS])
    assert (found.size.value, found.direction.value, found.seeds) == (
        pytest.approx(size),
        pytest.approx(direction),
        3,
    )


def test_least_and_largest_are_over_ladders():
    other = np.array([[3.0, 1.0], [4.0, 2.0], [5.0, 3.0]])
    assert find(COMPARISONS["least difference"], [SEEDS, other]).size.value == pytest.approx(2)
    assert find(COMPARISONS["largest difference"], [SEEDS, other]).size.value == pytest.approx(15)


@given(ladders)
@settings(max_examples=30)
def test_the_interval_of_a_difference_is_that_of_its_mean_over_seeds(values):
    found = find(COMPARISONS["difference"], [values]).size
    means = means_with_intervals(values[:, :1] - values[:, -1:])
    assert (found.value, found.low, found.high) == tuple(
        pytest.approx(float(each[0]), abs=1e-9) for each in (means.mean, means.low, means.high)
    )


@given(ladders)
@settings(max_examples=30)
def test_the_least_step_of_means_by_brute_force(values):
    found = find(COMPARISONS["least rise"], [values])
    assert found.size.value == pytest.approx(min(b - a for a, b in pairwise(values.mean(axis=0))), abs=1e-9)
    assert found.size.low <= found.size.high


def test_ends_are_quantiles_of_all_resamples_of_a_ratio():
    """At 2,000 resamples a level has a standard error of 0.0035; five of them fail once in two million."""
    draws = [SEEDS[list(rows)].mean(axis=0) for rows in product(range(3), repeat=3)]
    savings = [100 * (1 - mean[0] / mean[-1]) for mean in draws]
    found = find(COMPARISONS["saving"], [SEEDS]).size
    for end, level in ((found.low, 0.025), (found.high, 0.975)):
        assert np.quantile(savings, max(0, level - 0.018), method="lower") - 1e-9 <= end
        assert end <= np.quantile(savings, min(1, level + 0.018), method="higher") + 1e-9


def test_nothing_is_a_multiple_of_a_gain_that_may_be_none():
    unsure = np.array([[70.0, 60.0, 59.0], [70.0, 58.0, 60.0], [70.0, 61.0, 60.0], [70.0, 59.0, 59.5]])
    found = find(COMPARISONS["gain ratio"], [unsure])
    assert found.size.low == -math.inf
    assert found.direction.low < 0  # the half-trusted network may gain nothing over the last


def test_one_seed_has_no_interval():
    found = find(COMPARISONS["difference"], [SEEDS[:1]])
    assert found.size.value == pytest.approx(15)
    assert math.isnan(found.size.low)
