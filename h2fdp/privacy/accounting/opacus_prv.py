"""Opacus's PRV accountant, asked only what it can answer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting.conversion import epsilon_from_rdp
from h2fdp.privacy.accounting.release_types import ReleaseType, UnsupportedRelease
from h2fdp.privacy.accounting.renyi import rdp_of

ERROR_SHARE = 0.01
MOST_MESH_POINTS = 1 << 23
LEAST_DELTA = 1e-12, 1e-15  # and for each release: below them rounding in opacus makes its epsilons too small


def opacus_prv_epsilon(releases: Mapping[ReleaseType, int], delta: float) -> float:
    """Upper bound of opacus for these releases; its error term is 1 % of the epsilon by `rdp`, at least 0.001.

    Args:
        releases: those that reveal anything (`revealing`).

    Raises:
        UnsupportedRelease: for accumulated Poisson steps (a mixture that opacus does not know), for accounts that
            would take more memory than 2^23 points, where delta is too small for its transforms, and where opacus finds
            its own approximation unsound.
        UserError: opacus is not installed.
    """
    if any(release.noise_multiplier == 0 for release in releases):
        return math.inf
    if not releases:
        return 0.0
    if delta < (least := max(LEAST_DELTA[0], LEAST_DELTA[1] * sum(releases.values()))):
        text = f"prv is not reliable below a delta of {least:.2g} for so many releases: choose rdp or pld"
        raise UnsupportedRelease(text)
    for release in releases:
        if release.sampling == "poisson" and release.steps > 1 and release.sampling_rate < 1:
            raise UnsupportedRelease(
                f"prv accounts for one Poisson-sampled step a release, found {release.steps}: choose rdp or pld"
            )
        if release.replaced and release.sampling == "poisson" and release.sampling_rate < 1:
            raise UnsupportedRelease("prv knows no record that is replaced by another one: choose rdp or pld")
    bound = float(epsilon_from_rdp(np.sum([n * rdp_of(r) for r, n in releases.items()], axis=0), delta))
    error = max(ERROR_SHARE * bound, 1e-3)
    # opacus takes a mesh of error / sqrt(n log(12 000 / delta) / 2) over a range of at least epsilon to both sides
    mesh = error / math.sqrt(sum(releases.values()) * math.log(12_000 / delta) / 2)
    if (bound + 10) / mesh > MOST_MESH_POINTS:
        raise UnsupportedRelease(f"prv needs too fine a mesh for epsilon near {bound:.3g}: choose rdp or pld")
    return _ask_opacus(releases, delta, error)


def _ask_opacus(releases: Mapping[ReleaseType, int], delta: float, error: float) -> float:
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        text = "the accountant prv needs Opacus; run pip install opacus, or choose rdp or pld"
        raise UserError(text, key="accountant") from None

    accountant = PRVAccountant()
    accountant.history = [
        (release.noise_multiplier, release.sampling_rate if release.sampling == "poisson" else 1.0, count)
        for release, count in releases.items()
    ]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of quadrature and logarithms of 0 at its edges
            epsilon = float(accountant.get_epsilon(delta, eps_error=error))
    except (RuntimeError, ValueError) as refusal:
        raise UnsupportedRelease(f"prv has no sound answer here (opacus: {refusal}): choose rdp or pld") from refusal
    if not math.isfinite(epsilon):
        raise UnsupportedRelease("prv has no finite answer here: choose rdp or pld")
    return max(0.0, epsilon)
