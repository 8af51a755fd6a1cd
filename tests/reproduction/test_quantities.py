"""Comparisons against hand calculation, the intervals of Student and Fieller, and what their names promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from experiments.reproduction import student
from experiments.reproduction.quantities import COMPARISONS, find

SEEDS = np.array([[70.0, 60.0, 55.0], [72.0, 61.0, 57.0], [68.0, 62.0, 53.0]])  # three points, means 70, 61, 55
ladders = arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(2, 5)), elements=st.floats(1, 100))


@pytest.fixture
def few_draws(monkeypatch):
    """10,000 draws, for tests of many findings: a level of 0.025 is met to 0.0016."""
    monkeypatch.setattr(student, "DRAWS", 10_000)
    student._proportions.cache_clear()
    yield
    student._proportions.cache_clear()


def test_looks_at_growing_numbers_of_seeds_take_their_share_of_the_level():
    found = find(COMPARISONS["difference"], [SEEDS], looks=5)
    differences = SEEDS[:, 0] - SEEDS[:, 2]
    half = stats.t.ppf(1 - 0.025 / 5, 2) * differences.std(ddof=1) / math.sqrt(3)
    assert found.size.low == pytest.approx(differences.mean() - half, rel=0.02)
    assert found.size.high == pytest.approx(differences.mean() + half, rel=0.02)


@pytest.mark.parametrize(
    ("name", "size", "direction"),
    [
        ("difference", 15, 15),
        ("least rise", -9, -15),
        ("least fall", 6, 15),
        ("gain ratio", 15 / 6, 6),
        ("saving", 100 * (1 - 70 / 55), -15),
    ],
)
def test_values_are_those_worked_out_by_hand(name, size, direction):
    found = find(COMPARISONS[name], [SEEDS])
    assert (found.size.value, found.direction.value, found.seeds) == (pytest.approx(size), pytest.approx(direction), 3)


@given(ladders)
@settings(max_examples=10)
def test_the_interval_of_a_difference_is_students(values):
    """Of 200,000 draws the end of Student's distribution with one degree of freedom, the widest, is known to 1.4 % of
    its distance; four standard errors are allowed."""
    found = find(COMPARISONS["difference"], [values]).size
    differences = values[:, 0] - values[:, -1]
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    half = stats.t.ppf(0.975, len(differences) - 1) * error
    assert found.value == pytest.approx(differences.mean(), abs=1e-9)
    assert found.high - found.value == pytest.approx(half, rel=0.06, abs=1e-9)
    assert found.value - found.low == pytest.approx(half, rel=0.06, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 5])
def test_a_difference_that_is_none_is_found_above_zero_once_in_forty(few_draws, seeds):
    """1,000 samples: five standard errors of a share; fails once in two million. By the bootstrap it is found in 250 of
    1,000 cases with two seeds, in 80 with five."""
    rng = np.random.default_rng(seeds)
    found = [find(COMPARISONS["difference"], [rng.normal(size=(seeds, 2))]).size.low > 0 for _ in range(1000)]
    assert abs(np.mean(found) - 0.025) < 5 * math.sqrt(0.025 * 0.975 / 1000)


def test_the_interval_of_a_saving_is_fiellers():
    """At its ends the cost less that share of the other one is as far from none as Student's interval reaches."""
    costs = np.array([[60.0, 80.0], [70.0, 85.0], [66.0, 90.0], [58.0, 84.0], [61.0, 79.0]])
    found = find(COMPARISONS["saving"], [costs]).size
    for end, sign in ((found.low, -1), (found.high, 1)):
        rest = costs[:, 0] - (1 - end / 100) * costs[:, 1]
        assert stats.ttest_1samp(rest, 0).statistic == pytest.approx(sign * stats.t.ppf(0.975, 4), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("least difference", 2), ("largest difference", 5)])
def test_the_least_of_four_differences_is_seldom_outside_its_interval(few_draws, name, seeds):
    """Of four that are truly none, so that the least found is far below: 400 samples, and at most 2.5 in 100 at each
    end, to five standard errors. Drawing the least itself has it outside in more than half of the samples."""
    rng = np.random.default_rng(seeds)
    found = [find(COMPARISONS[name], [rng.normal(size=(seeds, 2)) for _ in range(4)]).size for _ in range(400)]
    most = 0.025 + 5 * math.sqrt(0.025 * 0.975 / 400)
    assert np.mean([each.low > 0 for each in found]) < most
    assert np.mean([each.high < 0 for each in found]) < most


def test_the_ends_of_a_least_and_a_largest_are_students():
    rng = np.random.default_rng(1)
    ladders = [rng.normal(size=(5, 2)) for _ in range(4)]
    apart = [stats.ttest_1samp(each[:, 0] - each[:, 1], 0).confidence_interval for each in ladders]
    plain, shared = ([each(level) for each in apart] for level in (0.95, 1 - 0.05 / 4))
    least, largest = (find(COMPARISONS[f"{word} difference"], ladders).size for word in ("least", "largest"))
    assert least.low == pytest.approx(min(each.low for each in plain), rel=0.03)
    assert least.high == pytest.approx(min(each.high for each in shared), rel=0.05)
    assert largest.low == pytest.approx(max(each.low for each in shared), rel=0.05)
    assert largest.high == pytest.approx(max(each.high for each in plain), rel=0.03)
