"""The accountants by name: from what was released to epsilon, for `pld` by privacy loss distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from h2fdp.privacy.accounting.loss_composition import (
    ABSOLUTE_TOLERANCE,
    HOPELESS,
    RELATIVE_TOLERANCE,
    NoisyMixture,
    converged_epsilon,
)
from h2fdp.privacy.accounting.mixtures import (
    PLAIN_GAUSSIAN,
    AnyMixture,
    Composition,
    LawPair,
    ReleaseType,
    revealing,
)
from h2fdp.privacy.accounting.renyi import (
    ORDERS,
    SAFETY,
    classic_epsilon_from_rdp,
    epsilon_from_rdp,
    pair_of,
    rdp_of,
    renyi_divergence,
)

LEAST_DELTA = 1e-200  # doubles end at 1e-308
_FAINT = 1e-20  # below it the losses of an epoch are not followed to their end
_NEAR, _FAR = 1e-5, 40.0  # a distance below which its first order will do; deviations beyond which no delta is
BOUNDLESS = 1e4  # an epsilon of one release beyond which nothing is protected, and grids are too coarse for doubles


def epsilon_of_mixtures(
    composition: Composition,
    mixture_of: Callable[[ReleaseType], AnyMixture | LawPair],
    delta: float,
    enough: float = 0.0,
) -> float:
    """`mixtures_epsilon` of a composition, each release read as the mixture that the rule says; inf without noise."""
    mixtures: Counter[NoisyMixture] = Counter()
    for release, count in revealing(composition).items():
        if release.noise_multiplier == 0:
            return math.inf
        mixtures[mixture_of(release), release.noise_multiplier] += count
    return mixtures_epsilon(mixtures, delta, enough)


def coarse(composition: Composition, delta: float) -> float:
    """The epsilon of Poisson-subsampled Gaussians of rate 1-(1-q)^m and full shift; never below the `pld` account.

    An upper bound, at most 0.05 % (or 1e-5) above what these mechanisms have.
    """
    return epsilon_of_mixtures(composition, partial(pair_of, coarse=True), delta)


def mixtures_epsilon(mixtures: Mapping[NoisyMixture, int], delta: float, enough: float = 0.0) -> float:
    """An upper bound on the epsilon of releasing each mixture `count` times, all with noise above 0.

    Guarantee: never below the exact one, up to rounding: its grid dominates. It is refined until what is left of the
    error is below 0.05 % (or 1e-5; beyond 100, 1 %), or until the bound is at most `enough`. Below a delta of 1e-200,
    and where one release alone may give away 10,000, it is the bound by Renyi divergences, and never above that. Where
    grids are rough, it is not above that of plain Gaussians of full shifts, which has a closed form. Cached.
    Neighbours: those of the mixtures, both directions.
    Source: Koskela et al. 2020; Doroshenko et al. 2022; dp-accounting.
    """
    bound = _of_largest_losses(mixtures) if mixtures else math.inf
    merged = _gaussians_merged(mixtures)
    others = [mixture for mixture, _ in mixtures if isinstance(mixture, LawPair)]
    if mixtures and all(mixture.gaussian for mixture in others):
        full = gaussian_epsilon(math.sqrt(math.fsum(count / noise**2 for (_, noise), count in mixtures.items())), delta)
        if others or delta < LEAST_DELTA or not ABSOLUTE_TOLERANCE / RELATIVE_TOLERANCE <= full <= HOPELESS:
            bound = min(bound, full)
            if all(mixture == PLAIN_GAUSSIAN for mixture, _ in merged):
                return bound
    if mixtures and (
        delta < LEAST_DELTA or (others and delta < _FAINT) or _of_full_shifts(mixtures, delta) > BOUNDLESS
    ):
        divergences = [count * renyi_divergence(*mixture) for mixture, count in mixtures.items()]
        bound = min(bound, float(epsilon_from_rdp(np.sum(divergences, axis=0), delta)))
        if delta < LEAST_DELTA or any(1 / noise**2 > BOUNDLESS for _, noise in mixtures):
            return bound
    return min(bound, converged_epsilon(tuple(sorted(merged.items(), key=_by_law)), delta, enough))


@lru_cache(4096)  # several observers hold the same account, and each is asked after every interval
def gaussian_epsilon(distance: float, delta: float) -> float:
    """The epsilon of a plain Gaussian whose mean moves by so many standard deviations.

    With t = epsilon / distance - distance / 2, and Mills' ratio M(t) = Phi(-t) / phi(t), its delta is phi(t) (M(t) -
    M(t + distance)), which no cancellation spoils.
    Source: Balle and Wang 2018, Theorem 8.

    >>> round(gaussian_epsilon(1 / 3.7304, 1e-5), 3), round(gaussian_epsilon(1e3, 1e-5))
    (1.0, 504264)
    """
    from scipy.special import erfcx

    def spends(t: float) -> bool:
        mills, beyond = (math.sqrt(math.pi / 2) * float(erfcx(each / math.sqrt(2))) for each in (t, t + distance))
        fallen = mills - beyond if distance > _NEAR else distance * (1 - t * mills)  # M is convex
        return math.log(fallen) - t**2 / 2 - math.log(2 * math.pi) / 2 > math.log(delta)

    low, high = max(-distance / 2, -_FAR), _FAR
    if not spends(low):
        return max(0.0, distance * (low + distance / 2))
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if spends(middle) else (low, middle)
    return distance * (high + distance / 2) * (1 + SAFETY)


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


AccountantName = Literal["rdp", "pld", "classic-rdp"]


@dataclass(frozen=True)
class Accountant:
    """A map from a composition to an upper bound on epsilon.

    Neighbours: one record of the device becomes a null record. The composition is fixed without looking at the data.

    Attributes:
        bound: of releases that reveal anything, at a delta; one that is at most the last argument need not be sharp.
        libraries: that compute its epsilon, in addition to NumPy.
        spread: by which part its epsilon may be above its exact bound, and so differ between nearly equal accounts.
    """

    name: AccountantName
    bound: Callable[[Composition, float, float], float]
    libraries: tuple[str, ...] = ()
    spread: float = 0.0

    def epsilon(self, composition: Composition, delta: float, enough: float = 0.0) -> float:
        """Epsilon at `delta`, in nats: 0 for nothing released, inf where a release carries no noise.

        The result may be any upper bound that is at most `enough`.

        >>> from h2fdp.privacy.accounting import ReleaseType
        >>> round(ACCOUNTANTS["rdp"].epsilon({ReleaseType(1.1, steps=1, sampling_rate=0.015): 900}, delta=1e-5), 3)
        2.505
        """
        return self.bound(composition, delta, enough) if revealing(composition) else 0.0


def total_rdp(composition: Composition, places: tuple[int, ...] | None = None) -> np.ndarray:
    """(len(ORDERS),) Renyi divergence of all releases together; to the bit the same in whatever order.

    Args:
        places: see `rdp_of`.
    """
    parts = [count * rdp_of(release, places) for release, count in sorted(revealing(composition).items())]
    return np.sum(parts, axis=0) if parts else np.zeros(ORDERS.size if places is None else len(places))


_FEW = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 96, 160, 256]


def quick_epsilon(composition: Composition, delta: float, near: float = 0.0) -> float:
    """An upper bound in a fraction of the time: that of `rdp` of few orders.

    Args:
        near: the epsilon that it is compared with: of a Gaussian with this one, twice the best order is the last.
    """
    last = max(4.0, 1 + 4 * -math.log(delta) / near) if near > 0 else math.inf
    few = tuple(np.flatnonzero(np.isin(ORDERS, [each for each in _FEW if each <= last])).tolist())
    return float(epsilon_from_rdp(total_rdp(composition, few), delta, few))


def _by_rdp(composition: Composition, delta: float, enough: float = 0.0) -> float:
    """Renyi divergences of the accounted mixtures added up, and the tight conversion; the live account."""
    return float(epsilon_from_rdp(total_rdp(composition), delta))


def _by_classic_rdp(composition: Composition, delta: float, enough: float = 0.0) -> float:
    """Epsilon by the conversion of Mironov 2017 and the orders 2..64, as ALI-DPFL counts."""
    return float(classic_epsilon_from_rdp(total_rdp(composition), delta))


def _by_losses(composition: Composition, delta: float, enough: float = 0.0) -> float:
    """Privacy loss distributions of the accounted mixtures; at most 0.05 % above their true epsilon."""
    return epsilon_of_mixtures(composition, pair_of, delta, enough)


ACCOUNTANTS: dict[str, Accountant] = {
    each.name: each
    for each in (
        Accountant("rdp", _by_rdp),
        Accountant("pld", _by_losses, ("scipy",), RELATIVE_TOLERANCE),
        Accountant("classic-rdp", _by_classic_rdp),
    )
}
