"""Epsilon of many mixtures of Gaussians together, by their privacy loss distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

import numpy as np

from h2fdp.privacy.accounting.conversion import epsilon_from_rdp
from h2fdp.privacy.accounting.loss_composition import epsilon_of, repeated, together
from h2fdp.privacy.accounting.loss_distribution import loss_distributions, loss_moments
from h2fdp.privacy.accounting.mixtures import PLAIN_GAUSSIAN, Mixture
from h2fdp.privacy.accounting.release_types import Composition, ReleaseType, revealing
from h2fdp.privacy.accounting.renyi import renyi_divergence

NoisyMixture: TypeAlias = tuple[Mixture, float]
"""A mixture and its noise multiplier."""

RELATIVE_TOLERANCE = 5e-4
ABSOLUTE_TOLERANCE = 1e-5
HOPELESS = 100.0  # an epsilon beyond which 1 % is precise enough
MOST_POINTS = 1 << 18  # of the grid of one release with up to 16 components; fewer for more
MOST_COMPOSED = 1 << 23


class EpsilonBracket(NamedTuple):
    """Two epsilons around the true one: at most 0.05 % (or 1e-5; beyond 100, 1 %) apart, short of the finest grid."""

    lower: float
    upper: float


def epsilon_of_mixtures(
    composition: Composition, mixture_of: Callable[[ReleaseType], Mixture], delta: float
) -> EpsilonBracket:
    """`epsilon_bracket` of a composition, each release read as the mixture that the rule says; inf without noise."""
    mixtures: Counter[NoisyMixture] = Counter()
    for release, count in revealing(composition).items():
        if release.noise_multiplier == 0:
            return EpsilonBracket(math.inf, math.inf)
        mixtures[mixture_of(release), release.noise_multiplier] += count
    return epsilon_bracket(mixtures, delta)


def epsilon_bracket(mixtures: Mapping[NoisyMixture, int], delta: float) -> EpsilonBracket:
    """The epsilon of releasing each mixture `count` times, all with noise above 0.

    Guarantee: `upper` is an upper bound, up to rounding: its grid dominates. The interval of the grid is halved until
    epsilon falls by less than 0.05 % (or 1e-5; beyond 100, 1 %). The error is of first order or better, so what is
    left of it is at most what the last halving took away, and `lower` is `upper` less that. Rounding stays below 1e-9
    of the probability mass for 10^6 releases, so `delta` should not be below 1e-8 there. Cached.
    Neighbours: those of the mixtures, both directions.
    Source: Koskela et al. 2020; Doroshenko et al. 2022; dp-accounting.
    """
    return _bracket(tuple(sorted(_gaussians_merged(mixtures).items())), delta)


def _gaussians_merged(mixtures: Mapping[NoisyMixture, int]) -> dict[NoisyMixture, int]:
    """Plain Gaussians compose exactly to one Gaussian."""
    rest = {key: count for key, count in mixtures.items() if count and len(key[0].shifts) > 1}
    precision = math.fsum(
        count * (mixture.shifts[0] / noise) ** 2
        for (mixture, noise), count in mixtures.items()
        if len(mixture.shifts) == 1
    )
    return rest | ({(PLAIN_GAUSSIAN, 1 / math.sqrt(precision)): 1} if precision else {})


@lru_cache(maxsize=1024)
def _bracket(parts: tuple[tuple[NoisyMixture, int], ...], delta: float) -> EpsilonBracket:
    if not parts:
        return EpsilonBracket(0.0, 0.0)
    interval, finest = _first_interval(parts, delta), _finest_interval(parts)
    interval = max(interval, 2 * finest)
    fine = _epsilon_on_grid(parts, interval, delta)
    while True:
        coarse, interval = fine, interval / 2
        fine = _epsilon_on_grid(parts, interval, delta)
        gain = max(0.0, coarse - fine)
        if gain <= _tolerance(fine) or interval < 2 * finest:
            return EpsilonBracket(max(0.0, fine - gain), fine)


def _tolerance(epsilon: float) -> float:
    return max((RELATIVE_TOLERANCE if epsilon <= HOPELESS else 0.01) * epsilon, ABSOLUTE_TOLERANCE)


def _first_interval(parts: tuple[tuple[NoisyMixture, int], ...], delta: float) -> float:
    """Fine enough for bell-shaped losses, and to resolve epsilon; one release adds interval^2/6 to the variance."""
    divergence = np.sum([count * renyi_divergence(*mixture) for mixture, count in parts], axis=0)
    largest = float(epsilon_from_rdp(divergence, delta))
    releases = sum(count for _, count in parts)
    variance = math.fsum(count * loss_moments(*mixture)[0] ** 2 for mixture, count in parts)
    return min(0.08 * math.sqrt(variance / releases), max(largest, 0.01) / 50)


def _finest_interval(parts: tuple[tuple[NoisyMixture, int], ...]) -> float:
    """Bounds memory and time: the grid of each release, and (at 20 standard deviations) that of all together."""
    single = max(
        loss_moments(*mixture)[1] / (MOST_POINTS * min(1.0, 16 / len(mixture[0].shifts))) for mixture, _ in parts
    )
    variance = math.fsum(count * loss_moments(*mixture)[0] ** 2 for mixture, count in parts)
    return max(single, 20 * math.sqrt(variance) / MOST_COMPOSED)


def _epsilon_on_grid(parts: tuple[tuple[NoisyMixture, int], ...], interval: float, delta: float) -> float:
    directions = zip(*(loss_distributions(*mixture, interval) for mixture, _ in parts), strict=True)
    counts = [count for _, count in parts]
    return max(
        epsilon_of(reduce(together, map(repeated, releases, counts)), interval, delta) for releases in directions
    )
