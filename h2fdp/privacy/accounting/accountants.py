"""The accountants by name: from what was released to epsilon."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting.mixture_composition import RELATIVE_TOLERANCE, epsilon_of_mixtures
from h2fdp.privacy.accounting.mixtures import Composition, ReleaseType, UnsupportedRelease, mixture_of, revealing
from h2fdp.privacy.accounting.renyi import ORDERS, classic_epsilon_from_rdp, epsilon_from_rdp, rdp_of

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


AccountantName = Literal["rdp", "pld", "prv", "classic-rdp"]


class Accountant(Protocol):
    """From a composition to an upper bound on epsilon.

    Neighbours: one record of the device becomes a null record. The composition is fixed without looking at the data.

    Attributes:
        libraries: that compute its epsilon, beside NumPy.
        spread: by which part its epsilon may be above its exact bound, and so differ between nearly equal accounts.
    """

    name: ClassVar[AccountantName]
    libraries: ClassVar[tuple[str, ...]]
    spread: ClassVar[float]

    def epsilon(self, composition: Composition, delta: float) -> float:
        """Epsilon at `delta`, in nats: 0 for nothing released, inf where a release carries no noise.

        Raises:
            UnsupportedRelease: where the accountant has no sound bound.
        """
        ...


@dataclass(frozen=True)
class RdpAccountant:
    """Renyi divergences of the accounted mixtures added up, and the tight conversion; the live account.

    >>> from h2fdp.privacy.accounting import ReleaseType
    >>> round(RdpAccountant().epsilon({ReleaseType(1.1, steps=1, sampling_rate=0.015): 900}, delta=1e-5), 3)
    2.505
    """

    name: ClassVar[AccountantName] = "rdp"
    libraries: ClassVar[tuple[str, ...]] = ()
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return float(epsilon_from_rdp(total_rdp(composition), delta)) if revealing(composition) else 0.0


@dataclass(frozen=True)
class ClassicRdpAccountant:
    """The same divergences with the conversion of Mironov 2017 and orders 2..64, as ALI-DPFL counts."""

    name: ClassVar[AccountantName] = "classic-rdp"
    libraries: ClassVar[tuple[str, ...]] = ()
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return float(classic_epsilon_from_rdp(total_rdp(composition), delta)) if revealing(composition) else 0.0


@dataclass(frozen=True)
class PldAccountant:
    """Privacy loss distributions of the accounted mixtures; at most 0.05 % above their true
    epsilon (`mixtures_epsilon`)."""

    name: ClassVar[AccountantName] = "pld"
    libraries: ClassVar[tuple[str, ...]] = ("scipy",)
    spread: ClassVar[float] = RELATIVE_TOLERANCE

    def epsilon(self, composition: Composition, delta: float) -> float:
        return epsilon_of_mixtures(composition, mixture_of, delta)


@dataclass(frozen=True)
class PrvAccountant:
    """Opacus's accountant (Gopi, Lee and Wutschitz 2021), a cross-check from another code base.

    It knows the Poisson-subsampled Gaussian only, so m = 1 or no amplification. Its bound includes its own error term.
    """

    name: ClassVar[AccountantName] = "prv"
    libraries: ClassVar[tuple[str, ...]] = ("opacus", "scipy")
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return opacus_prv_epsilon(revealing(composition), delta)


ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (RdpAccountant(), PldAccountant(), PrvAccountant(), ClassicRdpAccountant())
}


def total_rdp(composition: Composition) -> np.ndarray:
    """(len(ORDERS),) Renyi divergence of all releases together; to the bit the same in whatever order."""
    parts = [count * rdp_of(release) for release, count in sorted(revealing(composition).items())]
    return np.sum(parts, axis=0) if parts else np.zeros(ORDERS.size)
