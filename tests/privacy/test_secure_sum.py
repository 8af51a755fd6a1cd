"""Shares of one noise, against all sets of devices that might pool theirs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import Holder, Place, Tolerance
from tests.privacy.test_places import seen


@st.composite
def sums(draw):
    """A tolerance, weights and exposures of devices that begin, and who of them arrives, within the tolerance."""
    begun = draw(st.integers(1, 6))
    colluding = draw(st.integers(0, begun - 1))
    dropouts = draw(st.integers(0, begun - 1 - colluding))
    weights = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=begun, max_size=begun)))
    rates = np.array(draw(st.lists(st.floats(0.01, 0.5), min_size=begun, max_size=begun)))
    missing = draw(st.lists(st.sampled_from(range(begun)), max_size=dropouts, unique=True))
    there = np.array([device not in missing for device in range(begun)])
    return Tolerance(colluding, dropouts), weights / weights.sum(), rates, there


@given(sums())
def test_what_is_left_beyond_any_colluders_is_a_trusted_servers_noise(case):
    """The row's noise is the least over all sets of c others; within the tolerance it is never below sigma."""
    tolerance, weights, rates, there = case
    place = Place(Holder.SHARE, tolerance=tolerance)
    levels = place.levels(weights, rates)
    assert tolerance.opens(len(there), int(there.sum()))
    averaged = weights[there] / weights[there].sum()
    rows = seen(place, averaged, rates[there], levels[there])
    trusted = np.max(averaged * rates[there])  # of those who arrive, in the same unit
    parts = averaged * levels[there]
    count = len(parts)
    for device in range(count):
        others = [each for each in range(count) if each != device]
        for observer, more in (("edge", 0), ("cloud", 0), ("public", 0), ("peer", 1)):
            if observer == "peer" and count == 1:
                continue
            pooled = min(tolerance.colluding + more, count - 1)
            least = min(
                np.sqrt(sum(parts[each] ** 2 for each in range(count) if each not in known))
                for known in combinations(others, pooled)
            )
            sensitivity, noise_std = rows[observer][device + 1]
            assert noise_std == pytest.approx(least, rel=1e-9)
            assert sensitivity / averaged[device] == pytest.approx(sensitivity_alone(rows, averaged))
            if not more:
                assert noise_std >= trusted * (1 - 1e-9)


def sensitivity_alone(rows, averaged):
    """Of an upload before its weight, the same for all devices."""
    return rows["edge"][1][0] / averaged[0]


@given(sums())
def test_shares_are_sized_before_it_is_known_who_drops_out(case):
    """A share in the sum has the same variance whoever it comes from, sigma^2 / (s - c - d) by all that begin."""
    tolerance, weights, rates, _ = case
    shares = weights * Place(Holder.SHARE, tolerance=tolerance).levels(weights, rates)
    honest = len(weights) - tolerance.colluding - tolerance.dropouts
    assert shares == pytest.approx(np.full(len(weights), np.max(weights * rates) / np.sqrt(honest)))


def test_a_sum_opens_only_within_its_tolerance():
    tolerance = Tolerance(colluding=1, dropouts=2)
    assert [tolerance.opens(6, arrived) for arrived in (6, 5, 4, 3, 0)] == [True, True, True, False, False]
    assert not tolerance.opens(3, 3)  # one colludes and two may drop out: no share is sure to be unknown


@pytest.mark.parametrize(
    ("begun", "dropouts", "lost"), [(10, 0.25, 2), (10, 0.3, 3), (3, 0.3, 0), (5, 2, 2), (5, 0, 0), (10, 0.999, 9)]
)
def test_a_share_of_drop_outs_is_rounded_down(begun, dropouts, lost):
    assert Tolerance(dropouts=dropouts).lost(begun) == lost
