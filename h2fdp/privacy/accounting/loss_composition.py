"""Privacy losses of many releases added up, and what they say about epsilon: on one grid, refined until it is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np

from h2fdp.privacy.accounting.loss_distribution import (
    LEAST_REACH,
    LossDistribution,
    loss_distributions,
    loss_shape,
    reach_of,
    spectrum,
)
from h2fdp.privacy.accounting.mixtures import AnyMixture, LawPair

Parts: TypeAlias = Sequence[tuple[LossDistribution, int]]
"""Distributions on one grid, and how often each is drawn."""

SPILL = 1e-8  # of the tilted sum beyond either end of its window: bounded, and counted as above it
_ROUNDING = 1e-9  # of the tilted sum: more than its transforms lose, for up to a million releases
LARGEST_TILT = 4.0  # per grid step: a steeper one hides the mass of the next step
_FINENESS = 512  # tilts within a factor of two: where single large losses decide, the bulk jumps between two of them
_TILTS = 2.0 ** (np.arange(-16 * _FINENESS, 40 * _FINENESS + 1) / _FINENESS)  # per nat of loss
_NEARLY = 0.5  # a tilt whose Chernoff bound is above the best by less than this / tilt moves the bulk by one deviation
_STEEPEST = 600.0  # nats of the untilting that are followed below the bulk, where no epsilon is sought
_RETRIES = 8
_BLOCK = 200.0  # nats over which exp() neither over- nor underflows


def epsilon_of(parts: Parts, interval: float, delta: float, tilt: float | None = None) -> float:
    """The smallest epsilon >= 0 with E[(1 - exp(epsilon - loss))_+] <= delta, loss being the sum of all; else inf.

    Guarantee: not below the exact value for these distributions, whatever the tilt, rounding included. Under a good one
    it is that of a delta within a relative 1e-3, or nearer.

    Args:
        interval: the grid's, in nats.
        tilt: see `best_tilt`, which finds it where it is not known from another grid.
    """
    escaping = [count * math.log1p(-losses.infinite) for losses, count in parts if losses.infinite < 1]
    infinite = -math.expm1(math.fsum(escaping)) if len(escaping) == len(parts) else 1.0
    if infinite > delta:
        return math.inf
    tilt = best_tilt(parts, interval, delta) if tilt is None else tilt
    if chernoff_bound(parts, interval, delta, tilt) <= 0:
        return 0.0
    for _ in range(_RETRIES):
        bulk = _Bulk.of(parts, tilt * interval)
        epsilon = bulk.epsilon(interval, delta, infinite)
        if epsilon is not None:
            return epsilon
        tilt /= 4  # epsilon lies below the bulk
    return bulk.first * interval


def chernoff_bound(parts: Parts, interval: float, delta: float, tilt: float) -> float:
    """An upper bound on the epsilon of the finite losses, where it is positive: (log E exp(t loss) - log delta) / t."""
    return (_log_moment(parts, tilt * interval) - math.log(delta)) / tilt


def best_tilt(parts: Parts, interval: float, delta: float) -> float:
    """The tilt, per nat, with nearly the smallest Chernoff bound: under it the bulk lies about epsilon.

    The bound falls up to its minimum and rises beyond it, as the logarithm of the moment is convex. Of tilts that
    serve, it is the one on the coarsest grid of powers of two, so that similar accounts have the same.
    """

    @cache
    def bound(place: int) -> float:
        return chernoff_bound(parts, interval, delta, float(_TILTS[place]))

    def serves(place: int, best: int) -> bool:
        return bound(place) <= bound(best) + _NEARLY / float(_TILTS[place])

    last = max(int(np.searchsorted(_TILTS, LARGEST_TILT / interval, side="right")) - 1, 0)
    best, step = last // 2 // _FINENESS * _FINENESS, 8 * _FINENESS
    while step:
        around = [place for place in (best - step, best + step) if 0 <= place <= last]
        nearest = min(around, key=bound, default=best)
        if bound(nearest) < bound(best):
            best = nearest
        elif step < _FINENESS and all(serves(place, best) for place in around):
            break
        else:
            step //= 2
    step = _FINENESS
    while step > 1 and not serves(coarser := min(round(best / step) * step, last // step * step), best):
        step //= 2
    return float(_TILTS[coarser if step > 1 else best])


def _log_moment(parts: Parts, tilt: float) -> float:
    return math.fsum(count * losses.log_moment(tilt) for losses, count in parts)


@dataclass(frozen=True)
class _Bulk:
    """The tilted distribution of a sum of losses, in a window around its bulk.

    Attributes:
        first: grid position of the first mass.
        masses: (n,) tilted.
        tilt: per grid step.
        log_moment: log E exp(tilt * position) of the sum.
        cut_below, cut_above: whether any position of the sum is beyond that end of the window; then at most `SPILL` of
            the tilted mass is there, and comes in again at the other end.
    """

    first: int
    masses: np.ndarray
    tilt: float
    log_moment: float
    cut_below: bool
    cut_above: bool

    @classmethod
    def of(cls, parts: Parts, tilt: float) -> _Bulk:
        lowest = sum(count * losses.lowest for losses, count in parts)
        highest = sum(count * losses.highest for losses, count in parts)
        log_moment = _log_moment(parts, tilt)
        low, high = _window(parts, tilt, log_moment)
        low, high = max(low, lowest), min(high, highest)
        length = _length(high - low + 1)
        product = _product([(spectrum(losses, tilt, length), count) for losses, count in parts])
        masses = np.roll(np.fft.irfft(product, length), lowest - low)[: high - low + 1]
        return cls(low, np.maximum(masses, 0.0), tilt, log_moment, low > lowest, high < highest)

    def epsilon(self, interval: float, delta: float, infinite: float) -> float | None:
        """The epsilon of `epsilon_of`; None where it is positive and below the window.

        With S_k the mass of the losses from grid point k on, infinite ones included, and G_k their mass weighted by
        exp(loss_k - loss): delta(epsilon) = S_k - exp(epsilon - loss_k) G_k for epsilon between points k-1 and k.
        G_k = mass_k + exp(-interval) G_(k+1). All are in units of delta, which is exp(log_moment - tilt * bound).
        """
        bound = (self.log_moment - math.log(delta)) / self.tilt  # Chernoff's, as a position
        lowest = max(0, math.ceil(bound - self.first - _STEEPEST / self.tilt))
        places = np.arange(lowest, self.masses.size)[::-1]  # from the top
        untilted = np.exp(self.tilt * (bound - self.first - places))
        down = self.masses[places] * untilted
        mass = np.cumsum(down) + infinite / delta
        mass += SPILL * untilted[0] * self.cut_above + _ROUNDING * untilted
        weighted = discounted(down, interval)
        exceeding = np.flatnonzero(mass - weighted > 1)  # grid points below the epsilon sought
        if exceeding.size and exceeding[0] == 0:
            largest = (self.first + self.masses.size - 1) * interval  # of all finite losses, unless some were cut
            return math.inf if self.cut_above else max(0.0, largest)
        last = int(exceeding[0]) - 1 if exceeding.size else down.size - 1
        top = (self.first + self.masses.size - 1 - last) * interval
        if not exceeding.size and (self.cut_below or lowest):
            return None if top > 0 else 0.0
        if mass[last] <= 1:  # all above the grid point below together are less than delta
            return max(0.0, top - interval) if exceeding.size else 0.0
        inside = math.log((mass[last] - 1) / weighted[last])
        return max(0.0, top + (max(inside, -interval) if exceeding.size else inside))


def _window(parts: Parts, tilt: float, log_moment: float) -> tuple[int, int]:
    """Positions beyond which at most `SPILL` of the tilted sum lies on either side, by Chernoff bounds."""
    variance = math.fsum(count * losses.tilted_variance(tilt) for losses, count in parts)
    bell = 2.0 ** round(math.log2(math.sqrt(-2 * math.log(SPILL) / max(variance, 1e-6))))  # the best step for a bell

    def end(sign: int) -> float:
        lowest, step = math.inf, bell
        while True:
            bound = (_log_moment(parts, tilt + sign * step) - log_moment - math.log(SPILL)) / step
            if bound >= lowest:
                return lowest
            lowest, step = bound, step / 2

    return math.floor(-end(-1)), math.ceil(end(1))


def _product(factors: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
    """(n,) of all factors to their powers, which are at least 1, by squaring the product of all at once."""
    highest = max(power for _, power in factors).bit_length() - 1
    product = np.ones_like(factors[0][0])
    for bit in range(highest, -1, -1):
        if bit < highest:
            product *= product
        for factor, power in factors:
            if power >> bit & 1:
                product *= factor
    return product


def _length(least: int) -> int:
    """The length of a transform: 2^k or 3 2^k, so that few different ones occur.

    >>> _length(1), _length(9), _length(1025)
    (16, 16, 1536)
    """
    power = max(16, 1 << (least - 1).bit_length())
    return power * 3 // 4 if power * 3 // 4 >= max(least, 16) else power


def discounted(values: np.ndarray, interval: float) -> np.ndarray:
    """(n,) y_k = values_k + exp(-interval) y_(k-1)."""
    block = max(1, int(_BLOCK / interval))
    discounted = np.empty_like(values)
    before = 0.0
    for first in range(0, values.size, block):
        part = values[first : first + block]
        grown = np.exp(np.arange(part.size) * interval)
        discounted[first : first + block] = (np.cumsum(part * grown) + math.exp(-interval) * before) / grown
        before = float(discounted[first + part.size - 1])
    return discounted


NoisyMixture: TypeAlias = tuple[AnyMixture | LawPair, float]
"""A mixture, or the pair of another law, and its noise multiplier."""
_Parts: TypeAlias = tuple[tuple[NoisyMixture, int], ...]

RELATIVE_TOLERANCE = 5e-4
ABSOLUTE_TOLERANCE = 1e-5
HOPELESS = 100.0  # an epsilon beyond which 1 % is precise enough
MOST_POINTS = 1 << 18  # of the grid of one release with up to 16 components; fewer for more
MOST_COMPOSED = 1 << 23
_LESS_STEEP = 8  # that are tried for losses which have a largest one


@lru_cache(maxsize=1024)
def converged_epsilon(parts: _Parts, delta: float, enough: float = 0.0) -> float:
    """The larger direction, which nearly always is that of a record removed; or any bound that is at most `enough`."""
    if not parts:
        return 0.0
    removed = _of_direction(parts, delta, 0, enough)
    return max(removed, _of_direction(parts, delta, 1, max(removed, enough)))


def _of_direction(parts: _Parts, delta: float, direction: int, enough: float) -> float:
    """The epsilon of one direction, by a rough grid and finer ones until the last change says that little is left.

    A grid adds v to the variance of the loss, and an error that falls with v to epsilon: of two grids the finer one has
    at most 1 / (v_rough / v_fine - 1) of what it took away.

    Args:
        direction: 0 for a record removed, 1 for one added.
        enough: an epsilon below which more precision is of no use.
    """

    def on_grid(interval: float) -> Parts:
        return [(loss_distributions(*mixture, interval, reach)[direction], count) for mixture, count in parts]

    def tilt_on(interval: float) -> float:
        losses = on_grid(interval)
        best = best_tilt(losses, interval, delta)
        if not any(isinstance(mixture, LawPair) for (mixture, _), _ in parts):
            return best
        # Where the largest loss alone has a chance above delta, ever steeper tilts have ever better Chernoff bounds,
        # and hide the losses below it. Each tilt gives a bound: the least steep one serves that is as good as any.
        tilts = [best / 8.0**place for place in range(_LESS_STEEP)]
        epsilons = [epsilon_of(losses, interval, delta, tilt=tilt) for tilt in tilts]
        least = min(epsilons) + _tolerance(min(epsilons)) / 4
        return next(tilts[place] for place in range(_LESS_STEEP - 1, -1, -1) if epsilons[place] <= least)

    reach = reach_of(delta, sum(count for _, count in parts))
    finest = _finest_interval(parts)
    rough = _power_of_two(max(_deviation(parts) / math.sqrt(sum(count for _, count in parts)), 2 * finest))
    tilt = tilt_on(rough)
    epsilon = epsilon_of(on_grid(rough), rough, delta, tilt=tilt)
    while epsilon > enough and tilt * rough > LARGEST_TILT / 2 and rough > finest:  # the grid hides a better tilt
        rough /= 2
        tilt = tilt_on(rough)
        epsilon = epsilon_of(on_grid(rough), rough, delta, tilt=tilt)
    if epsilon <= enough or math.isinf(epsilon):  # losses too small, or too large, for doubles
        return epsilon
    interval = _promising_interval(parts, rough, tilt, epsilon)
    while epsilon > enough and rough > finest:
        interval = max(min(interval, rough / 2), finest)
        first_epsilon = epsilon_of(on_grid(interval), interval, delta, tilt=tilt)
        gain, epsilon = max(0.0, epsilon - first_epsilon), min(epsilon, first_epsilon)
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
    """The variance that the grid adds to the sum of all losses."""
    return math.fsum(count * loss_shape(*mixture, LEAST_REACH).added_variance(interval) for mixture, count in parts)


def _deviation(parts: _Parts) -> float:
    """The standard deviation of the sum of all losses."""
    return math.sqrt(math.fsum(count * loss_shape(*mixture, LEAST_REACH).deviation ** 2 for mixture, count in parts))


def _power_of_two(most: float) -> float:
    """The largest one that is not above."""
    return 2.0 ** math.floor(math.log2(most))


def _finest_interval(parts: _Parts) -> float:
    """Bounds memory and time: the grid of each release, and (at 20 standard deviations) that of all together."""
    single = max(
        loss_shape(*mixture, LEAST_REACH).range / (MOST_POINTS * min(1.0, 16 / len(mixture[0].shifts)))
        for mixture, _ in parts
    )
    return max(single, 20 * _deviation(parts) / MOST_COMPOSED)
