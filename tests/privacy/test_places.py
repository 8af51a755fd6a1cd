"""Where the noise is added, who sees which vector, and shares of one noise that some devices might pool."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import (
    CentralDp,
    GradientSumMechanism,
    HierarchicalDp,
    Holder,
    LocalDp,
    PaperCalibration,
    Place,
    Tolerance,
    levels_of_observers,
)
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.privacy.releases import rows_in
from tests.privacy.uploads import levels_of, rows_of, uploads_of

LEVELS = GradientSumMechanism(PaperCalibration(1.0, 1e-5, 1.0, 10, 10), ClippedBatches(1.0), "tight")
PEOPLE = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size),
        st.lists(st.floats(0.01, 0.5), min_size=size, max_size=size),
    )
)


def seen(place, weights, rates, levels=None):
    """Observer -> device -> (sensitivity, noise), by default under the noise that this place asks for."""
    if levels is None:
        levels = levels_of(LEVELS, place, weights, rates, np.full(len(rates), 9))[0]
    by_observer = {}
    for row in rows_of(LEVELS, uploads_of(place, weights, rates, levels), peers=len(weights) > 1):
        for part in rows_in(row.devices):
            for device in range(part.start + 1, part.stop + 1):
                by_observer.setdefault(row.observer, {})[device] = (row.sensitivity, row.noise_std)
    return by_observer


@given(PEOPLE)
def test_shares_of_one_noise_are_that_of_a_trusted_edge_server(people):
    """Whoever sees the sum gets what a trusted edge server would send, the edge server as well."""
    weights, rates = np.array(people[0]) / sum(people[0]), np.array(people[1])
    sums, trusted = seen("share", weights, rates), seen("edge", weights, rates)
    for observer in ("edge", "cloud", "public"):
        for device, (sensitivity, noise_std) in trusted["cloud"].items():
            assert sums[observer][device] == (pytest.approx(sensitivity), pytest.approx(noise_std))
    if len(weights) > 1:  # a peer subtracts its own share
        whole = trusted["cloud"][1][1]
        left = whole * math.sqrt((len(weights) - 1) / len(weights))
        assert all(noise_std == pytest.approx(left) for _, noise_std in sums["peer"].values())


@pytest.mark.parametrize(
    ("place", "tree", "star"),
    [
        (Place(Holder.DEVICE), {"edge": 0, "cloud": 2}, {"edge": 0, "cloud": 0}),
        (Place(Holder.SHARE), {"edge": 1, "cloud": 2}, {"edge": 1, "cloud": 1}),
        (Place(Holder.NODE), {"cloud": 2}, {"cloud": 1}),
        (Place(Holder.NODE, 2), {}, {}),
    ],
)
def test_who_sees_what_follows_from_the_place(place, tree, star):
    for levels, expected in (
        (levels_of_observers(place, heights=(1, 2), passed=2), tree),
        (levels_of_observers(place, edge_is_cloud=True), star),
    ):
        assert {name: level for name, level in levels.items() if name in ("edge", "cloud")} == expected


@pytest.mark.parametrize(
    ("chain", "places"),
    [
        (("trusted", "trusted", "untrusted"), [Place(Holder.NODE, 0), Place(Holder.NODE, 1), Place(Holder.NODE, 1)]),
        (("trusted", "secure-sum", "trusted"), [Place(Holder.NODE, 0)] * 3),
        (("untrusted", "trusted", "trusted"), [Place(Holder.DEVICE)] * 3),
        (("secure-sum", "trusted"), [Place(Holder.SHARE)] * 2),
    ],
)
def test_the_highest_trusted_node_of_an_unbroken_chain_that_a_vector_passes_adds_the_noise(chain, places):
    assert [HierarchicalDp().place(chain, passed) for passed in range(1, len(chain) + 1)] == places
    assert {LocalDp().place(chain, passed) for passed in range(1, len(chain) + 1)} == {Place(Holder.DEVICE)}
    assert {CentralDp().place(chain, passed) for passed in range(1, len(chain) + 1)} == {Place(Holder.NODE, len(chain))}


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
