"""Epsilon of many mixtures of Gaussians together, by their privacy loss distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from h2fdp.privacy.accounting.loss_composition import LARGEST_TILT, Parts, best_tilt, epsilon_of
from h2fdp.privacy.accounting.loss_distribution import loss_distributions, loss_shape, reach_of
from h2fdp.privacy.accounting.mixtures import (
    PLAIN_GAUSSIAN,
    AnyMixture,
    Composition,
    ReleaseType,
    coarse_mixture_of,
    revealing,
)
from h2fdp.privacy.accounting.renyi import epsilon_from_rdp, renyi_divergence

NoisyMixture: TypeAlias = tuple[AnyMixture, float]
"""A mixture and its noise multiplier."""
_Parts: TypeAlias = tuple[tuple[NoisyMixture, int], ...]

RELATIVE_TOLERANCE = 5e-4
ABSOLUTE_TOLERANCE = 1e-5
HOPELESS = 100.0  # an epsilon beyond which 1 % is precise enough
MOST_POINTS = 1 << 18  # of the grid of one release with up to 16 components; fewer for more
MOST_COMPOSED = 1 << 23
LEAST_DELTA = 1e-200  # doubles end at 1e-308
BOUNDLESS = 1e4  # an epsilon of one release beyond which nothing is protected, and grids are too coarse for doubles


def epsilon_of_mixtures(
    composition: Composition, mixture_of: Callable[[ReleaseType], AnyMixture], delta: float
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
    return epsilon_of_mixtures(composition, coarse_mixture_of, delta)


def mixtures_epsilon(mixtures: Mapping[NoisyMixture, int], delta: float) -> float:
    """An upper bound on the epsilon of releasing each mixture `count` times, all with noise above 0.

    Guarantee: never below the exact one, up to rounding: its grid dominates. It is refined until what is left of the
    error is below 0.05 % (or 1e-5; beyond 100, 1 %). Below a delta of 1e-200, and where one release alone may give away
    10,000, it is the bound by Renyi divergences, and never above that. Cached.
    Neighbours: those of the mixtures, both directions.
    Source: Koskela et al. 2020; Doroshenko et al. 2022; dp-accounting.
    """
    by_renyi = math.inf
    if mixtures and (delta < LEAST_DELTA or _of_full_shifts(mixtures, delta) > BOUNDLESS):
        divergences = [count * renyi_divergence(*mixture) for mixture, count in mixtures.items()]
        by_renyi = float(epsilon_from_rdp(np.sum(divergences, axis=0), delta))
        if delta < LEAST_DELTA or any(1 / noise**2 > BOUNDLESS for _, noise in mixtures):
            return by_renyi
    return min(by_renyi, _converged(tuple(sorted(_gaussians_merged(mixtures).items())), delta))


def _of_full_shifts(mixtures: Mapping[NoisyMixture, int], delta: float) -> float:
    """Not below any of them: the epsilon as if every release were shifted by all of its sensitivity (Bun, Steinke)."""
    rho = math.fsum(count / (2 * noise**2) for (_, noise), count in mixtures.items())
    return rho + 2 * math.sqrt(rho * -math.log(delta))


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
def _converged(parts: _Parts, delta: float) -> float:
    """The larger direction, which nearly always is that of a record removed."""
    if not parts:
        return 0.0
    removed = _of_direction(parts, delta, 0, 0.0)
    return max(removed, _of_direction(parts, delta, 1, removed))


def _of_direction(parts: _Parts, delta: float, direction: int, enough: float) -> float:
    """By a rough grid, one that should do, and finer ones until what a grid took away says that little is left.

    A grid adds v to the variance of the loss, and an error that falls with v to epsilon: of two grids the finer one has
    at most 1 / (v_rough / v_fine - 1) of what it took away.

    Args:
        direction: 0 for a record removed, 1 for one added.
        enough: an epsilon below which nobody asks for more precision.
    """

    def on_grid(interval: float) -> Parts:
        return [(loss_distributions(*mixture, interval, reach)[direction], count) for mixture, count in parts]

    reach = reach_of(delta, sum(count for _, count in parts))
    finest = _finest_interval(parts)
    rough = _power_of_two(max(_deviation(parts) / math.sqrt(sum(count for _, count in parts)), 2 * finest))
    tilt = best_tilt(on_grid(rough), rough, delta)
    epsilon = epsilon_of(on_grid(rough), rough, delta, tilt=tilt)
    while epsilon > enough and tilt * rough > LARGEST_TILT / 2 and rough > finest:  # the grid hides a better tilt
        rough /= 2
        tilt = best_tilt(on_grid(rough), rough, delta)
        epsilon = epsilon_of(on_grid(rough), rough, delta, tilt=tilt)
    if epsilon <= enough:
        return epsilon
    interval = _promising_interval(parts, rough, tilt, epsilon)
    while epsilon > enough and rough > finest:
        interval = max(min(interval, rough / 2), finest)
        found = epsilon_of(on_grid(interval), interval, delta, tilt=tilt)
        gain, epsilon = max(0.0, epsilon - found), min(epsilon, found)
        left = gain / (_added_variance(parts, rough) / _added_variance(parts, interval) - 1)
        if left <= _tolerance(epsilon):
            break
        rough, interval = interval, interval / 2
    return epsilon


def _tolerance(epsilon: float) -> float:
    return max((RELATIVE_TOLERANCE if epsilon <= HOPELESS else 0.01) * epsilon, ABSOLUTE_TOLERANCE)


def _promising_interval(parts: _Parts, interval: float, tilt: float, epsilon: float) -> float:
    """One that should come within the tolerance: adding v to the variance of the loss adds some tilt v / 2 to epsilon.

    A power of two, so that accounts of the same releases share what is kept.

    Args:
        interval, epsilon: of a grid that may be too coarse, and what it gave.
    """
    interval = min(interval, _power_of_two(max(epsilon, 0.01) / 16))
    while tilt / 2 * _added_variance(parts, interval) > _tolerance(epsilon):
        interval /= 2
    return interval


def _added_variance(parts: _Parts, interval: float) -> float:
    """By the grid, to the sum of all losses."""
    return math.fsum(count * loss_shape(*mixture).added_variance(interval) for mixture, count in parts)


def _deviation(parts: _Parts) -> float:
    """Of the sum of all losses."""
    return math.sqrt(math.fsum(count * loss_shape(*mixture).deviation ** 2 for mixture, count in parts))


def _power_of_two(most: float) -> float:
    """The largest one that is not above."""
    return 2.0 ** math.floor(math.log2(most))


def _finest_interval(parts: _Parts) -> float:
    """Bounds memory and time: the grid of each release, and (at 20 standard deviations) that of all together."""
    single = max(
        loss_shape(*mixture).range / (MOST_POINTS * min(1.0, 16 / len(mixture[0].shifts))) for mixture, _ in parts
    )
    return max(single, 20 * _deviation(parts) / MOST_COMPOSED)
