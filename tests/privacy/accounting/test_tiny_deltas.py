"""At any delta: `pld` is neither below the truth nor infinite; what cannot say is refused."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon

WEAK = ReleaseType(30.0, 1, 0.05)
PLD, RDP = ACCOUNTANTS["pld"], ACCOUNTANTS["rdp"]


@cache
def sums_by_rounding(release, count, interval):
    """Losses of `count` subsampled Gaussians, a record removed, and their masses, from below and above: those of fine
    cells are rounded down and up, and added by direct convolution, which keeps all digits of the smallest masses."""
    z, q = release.noise_multiplier, release.sampling_rate
    edges = np.linspace(-20.0, 20.0 + 1 / z, 20_001)  # 1e-88 of the mass is left out
    unmoved, moved = np.diff(ndtr(edges)), np.diff(ndtr(edges - 1 / z))
    upper = edges[1:] > 0  # differences in the upper tail are taken where they are precise
    unmoved[upper] = -np.diff(ndtr(-edges))[upper]
    moved[upper] = -np.diff(ndtr(1 / z - edges))[upper]
    masses = q * moved + (1 - q) * unmoved
    losses = [np.log1p(q * np.expm1(edge / z - 0.5 / z**2)) for edge in (edges[:-1], edges[1:])]
    found = []
    for places in (np.floor(losses[0] / interval).astype(int), np.ceil(losses[1] / interval).astype(int)):
        lowest, whole = places.min(), np.bincount(places - places.min(), masses)
        doublings = int(math.log2(count))
        assert count == 2**doublings
        for _ in range(doublings):
            whole = np.convolve(whole, whole)
        found.append(((lowest * count + np.arange(whole.size)) * interval, whole))
    return found


def epsilon_by_bisection(losses, masses, delta):
    low, high = 0.0, float(losses[-1])
    for _ in range(60):
        middle = (low + high) / 2
        left = masses @ np.maximum(-np.expm1(np.minimum(middle - losses, 0)), 0)
        low, high = (middle, high) if left > delta else (low, middle)
    return high


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 1e-10, 1e-13, 1e-20, 1e-60])
def test_against_direct_convolution(delta):
    release, count = ReleaseType(4.0, 1, 0.1), 8
    lower, upper = (epsilon_by_bisection(*each, delta) for each in sums_by_rounding(release, count, 5e-4))
    assert upper - lower < 0.03 * upper
    assert lower <= PLD.epsilon({release: count}, delta) <= upper


@pytest.mark.parametrize(
    ("delta", "exact"),
    [(1e-13, 3.821), (1e-14, 3.985)],  # by an independent accountant, tilted as well
)
def test_a_hundred_thousand_releases(delta, exact):
    """An untilted transform gives 3.695 and 3.709."""
    assert PLD.epsilon({WEAK: 100_000}, delta) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("delta", [1e-8, 1e-13, 1e-16, 1e-20, 1e-100])
@pytest.mark.parametrize(("release", "count"), [(WEAK, 100_000), (ReleaseType(0.8, 5, 0.01), 200), (WEAK, 10**6)])
def test_pld_and_rdp_are_in_order(release, count, delta):
    assert 0 < PLD.epsilon({release: count}, delta) <= RDP.epsilon({release: count}, delta)


@pytest.mark.parametrize("delta", [1e-210, 1e-300])
def test_where_doubles_end_it_is_the_bound_by_renyi_divergences(delta):
    composition = {ReleaseType(5.0, 3, 0.01): 10}
    assert PLD.epsilon(composition, delta) == RDP.epsilon(composition, delta) < math.inf


@pytest.mark.parametrize("delta", [1e-13, 1e-20, 1e-100])
def test_gaussians_at_tiny_deltas(delta):
    exact = exact_gaussian_epsilon(4.0, delta)
    release = ReleaseType(40.0, 3, 0.2, "fixed")
    assert exact <= PLD.epsilon({release: 100}, delta) <= exact * 1.0006
