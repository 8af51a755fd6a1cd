"""Where the noise is added, and who sees which vector."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import GradientSumMechanism, HierarchicalDp, Holder, LocalDp, Place, vectors_of_observers
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from h2fdp.privacy.mechanisms.device_unit import CentralDp
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
        (vectors_of_observers(place, heights=(1, 2), passed=2), tree),
        (vectors_of_observers(place, edge_is_cloud=True), star),
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
