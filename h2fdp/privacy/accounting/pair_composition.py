"""Epsilon that an observer of many noisy vectors attains at least, from the law of each with a record and without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from h2fdp.privacy.accounting.loss_composition import LARGEST_TILT, Parts, best_tilt, chernoff_bound, epsilon_of
from h2fdp.privacy.accounting.loss_distribution import reach_of
from h2fdp.privacy.accounting.output_pairs import OutputPair, dominated_losses, pair_moments

_Parts: TypeAlias = tuple[tuple[OutputPair, int], ...]
TOLERANCE = 5e-4
ABSOLUTE_TOLERANCE = 1e-5
HOPELESS = 100.0  # an epsilon beyond which 1 % is precise enough
FIRST_INTERVAL = 0.125  # standard deviations of one vector's loss, in the quadratic mean
MOST_POINTS, MOST_COMPOSED = 1 << 17, 1 << 21
LEAST_DELTA = 1e-200
_BELOW = 6.0  # deviations
_NEAR = 0.9  # of an epsilon that is enough: finer grids gain a few per cent
BOUNDLESS = 50.0  # deviations between the centres of one vector beyond which doubles hold hardly a point of both laws


def attained_epsilon(pairs: Mapping[OutputPair, int], delta: float, enough: float = 0.0) -> float:
    """The epsilon of observing each pair `count` times, at least.

    Guarantee: some test really attains it, short of rounding. The grid is refined until another one would gain some
    0.05 % (or 1e-5): what it loses is of second order, a third of the last gain. Below a delta of 1e-200 it is 0; where
    one vector alone gives away thousands, it is that of one, or of all others. Cached.
    Neighbours: those of the pairs, both directions.

    Args:
        enough: a smaller epsilon than this is of no interest, and found less precisely.
    """
    told = tuple(sorted((pair, count) for pair, count in pairs.items() if count and pair.present != pair.absent))
    if not told or delta < LEAST_DELTA:
        return 0.0
    weak = tuple((pair, count) for pair, count in told if pair.centres[-1] <= BOUNDLESS)
    strong = [_of_one_vector(pair, delta) for pair, _ in told if pair.centres[-1] > BOUNDLESS]
    return max(strong, default=0.0) if not weak else max(_converged(weak, delta, enough), *strong, 0.0)


def _of_one_vector(pair: OutputPair, delta: float) -> float:
    """By the test whether the vector is above a centre less six deviations, for the best centre."""
    from scipy.special import log_ndtr, logsumexp, ndtr  # half a second, for the few who need it

    found = 0.0
    for place, centre in enumerate(pair.centres):
        at_least = math.fsum(pair.present[place:]) * float(ndtr(_BELOW))
        chances = [chance for chance in pair.absent if chance > 0]
        tails = [
            float(log_ndtr(each - centre + _BELOW)) for each, p in zip(pair.centres, pair.absent, strict=True) if p > 0
        ]
        by_chance = float(logsumexp(tails, b=chances))
        if at_least > delta:
            found = max(found, math.log(at_least - delta) - by_chance)
    return found


@lru_cache(maxsize=1024)
def _converged(parts: _Parts, delta: float, enough: float) -> float:
    """The larger direction, which nearly always is that of a record removed."""
    removed = _of_direction(parts, delta, 0, enough)
    return max(removed, _of_direction(parts, delta, 1, max(removed, enough)))


def _of_direction(parts: _Parts, delta: float, direction: int, enough: float) -> float:
    """On ever finer grids.

    Args:
        direction: 0 for a record removed, 1 for one added.
        enough: an epsilon below which nobody asks for more precision; finer grids gain a few per cent.
    """

    def on_grid(interval: float) -> Parts:
        return [(dominated_losses(pair, interval, reach)[direction], count) for pair, count in parts]

    def at_most(interval: float, tilt: float) -> float:
        """What no grid exceeds: Chernoff's bound, with each loss rounded up where the grid has rounded it down."""
        return chernoff_bound(on_grid(interval), interval, delta, tilt) + interval * sum(count for _, count in parts)

    reach = reach_of(delta, sum(count for _, count in parts))
    moments = [(pair_moments(pair), count) for pair, count in parts]
    deviation = math.sqrt(math.fsum(count * each[0] ** 2 for each, count in moments))
    points = [MOST_POINTS * min(1.0, 16 / len(pair.centres)) for pair, _ in parts]
    single = (each[1] / most for (each, _), most in zip(moments, points, strict=True))
    finest = max(*single, 20 * deviation / MOST_COMPOSED)
    interval = 2.0 ** math.floor(math.log2(FIRST_INTERVAL * deviation / math.sqrt(sum(count for _, count in parts))))
    interval = max(interval, finest)
    tilt = best_tilt(on_grid(interval), interval, delta)
    while tilt * interval > LARGEST_TILT / 2 and interval / 2 >= finest:  # the grid hides a better one
        if at_most(interval, tilt) <= _NEAR * enough:
            break
        interval /= 2
        tilt = best_tilt(on_grid(interval), interval, delta)
    found = epsilon_of(on_grid(interval), interval, delta, "lower", tilt)
    while found > _NEAR * enough and interval / 2 >= finest:
        interval /= 2
        finer = epsilon_of(on_grid(interval), interval, delta, "lower", tilt)
        gain, found = finer - found, max(found, finer)
        if gain / 3 <= max((TOLERANCE if found <= HOPELESS else 0.01) * found, ABSOLUTE_TOLERANCE):
            break
    return found
