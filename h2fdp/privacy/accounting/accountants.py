"""The accountants by name: from what was released to epsilon, for `pld` by privacy loss distributions."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting.loss_composition import RELATIVE_TOLERANCE, NoisyMixture, converged_epsilon
from h2fdp.privacy.accounting.mixtures import (
    PLAIN_GAUSSIAN,
    AnyMixture,
    Composition,
    LawPair,
    ReleaseType,
    UnsupportedRelease,
    pair_of,
    revealing,
)
from h2fdp.privacy.accounting.renyi import (
    ORDERS,
    classic_epsilon_from_rdp,
    epsilon_from_rdp,
    rdp_of,
    renyi_divergence,
)

LEAST_DELTA = 1e-200  # doubles end at 1e-308
BOUNDLESS = 1e4  # an epsilon of one release beyond which nothing is protected, and grids are too coarse for doubles


def epsilon_of_mixtures(
    composition: Composition, mixture_of: Callable[[ReleaseType], AnyMixture | LawPair], delta: float
) -> float:
    """`mixtures_epsilon` of a composition, each release read as the mixture that the rule says; inf without noise."""
    mixtures: Counter[NoisyMixture] = Counter()
    for release, count in revealing(composition).items():
        if release.noise_multiplier == 0:
            return math.inf
        mixtures[mixture_of(release), release.noise_multiplier] += count
    return mixtures_epsilon(mixtures, delta)


def coarse(composition: Composition, delta: float) -> float:
    """The epsilon of Poisson-subsampled Gaussians of rate 1-(1-q)^m and full shift; never below the `pld` account.

    An upper bound, at most 0.05 % (or 1e-5) above what these mechanisms have.
    """
    return epsilon_of_mixtures(composition, partial(pair_of, coarse=True), delta)


def mixtures_epsilon(mixtures: Mapping[NoisyMixture, int], delta: float) -> float:
    """An upper bound on the epsilon of releasing each mixture `count` times, all with noise above 0.

    Guarantee: never below the exact one, up to rounding: its grid dominates. It is refined until what is left of the
    error is below 0.05 % (or 1e-5; beyond 100, 1 %). Below a delta of 1e-200, and where one release alone may give away
    10,000, it is the bound by Renyi divergences, and never above that. Cached.
    Neighbours: those of the mixtures, both directions.
    Source: Koskela et al. 2020; Doroshenko et al. 2022; dp-accounting.
    """
    bound = _of_largest_losses(mixtures) if mixtures else math.inf
    if mixtures and (delta < LEAST_DELTA or _of_full_shifts(mixtures, delta) > BOUNDLESS):
        divergences = [count * renyi_divergence(*mixture) for mixture, count in mixtures.items()]
        bound = min(bound, float(epsilon_from_rdp(np.sum(divergences, axis=0), delta)))
        if delta < LEAST_DELTA or any(1 / noise**2 > BOUNDLESS for _, noise in mixtures):
            return bound
    merged = _gaussians_merged(mixtures)
    return min(bound, converged_epsilon(tuple(sorted(merged.items(), key=_by_law)), delta))


def _of_largest_losses(mixtures: Mapping[NoisyMixture, int]) -> float:
    """The sum of the largest losses (basic composition), where each law has one; else inf."""
    ends = [
        count * float(np.abs(mixture.loss(noise, np.array(mixture.ends(noise)))).max())
        for (mixture, noise), count in mixtures.items()
        if isinstance(mixture, LawPair)
    ]
    return math.fsum(ends) if len(ends) == len(mixtures) else math.inf


def _by_law(part: tuple[NoisyMixture, int]) -> tuple[Any, ...]:
    """Gaussians first: laws do not compare."""
    (mixture, _), _ = part
    return (1, type(mixture).__name__, part) if isinstance(mixture, LawPair) else (0, part)


def _of_full_shifts(mixtures: Mapping[NoisyMixture, int], delta: float) -> float:
    """Not below any of them: the epsilon as if every release were shifted by all of its sensitivity (Bun, Steinke)."""
    rho = math.fsum(
        count * (mixture.concentrated(noise) if isinstance(mixture, LawPair) else 1 / (2 * noise**2))
        for (mixture, noise), count in mixtures.items()
    )
    return rho + 2 * math.sqrt(rho * -math.log(delta))


def _gaussians_merged(mixtures: Mapping[NoisyMixture, int]) -> dict[NoisyMixture, int]:
    """Plain Gaussians compose exactly to one Gaussian."""
    plain = {key for key in mixtures if len(key[0].shifts) == 1 and not isinstance(key[0], LawPair)}
    rest = {key: count for key, count in mixtures.items() if count and key not in plain}
    precision = math.fsum(
        count * (mixture.shifts[0] / noise) ** 2
        for (mixture, noise), count in mixtures.items()
        if (mixture, noise) in plain
    )
    return rest | ({(PLAIN_GAUSSIAN, 1 / math.sqrt(precision)): 1} if precision else {})


ERROR_SHARE = 0.01
MOST_MESH_POINTS = 1 << 23
PRV_LEAST_DELTA = 1e-12, 1e-15  # and for each release: below them rounding in opacus makes its epsilons too small


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
    if delta < (least := max(PRV_LEAST_DELTA[0], PRV_LEAST_DELTA[1] * sum(releases.values()))):
        text = f"prv is not reliable below a delta of {least:.2g} for so many releases: choose rdp or pld"
        raise UnsupportedRelease(text)
    for release in releases:
        if release.law != "gaussian":
            raise UnsupportedRelease(f"prv knows Gaussian noise, found {release.law}: choose rdp or pld")
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
        return epsilon_of_mixtures(composition, pair_of, delta)


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
