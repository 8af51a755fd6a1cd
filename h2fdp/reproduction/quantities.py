"""Comparisons of points, each with a 95 % interval over seeds.

Points are compared under the same seeds: what differs between seeds - networks, trust, data - does not blur a
difference within them. An interval is that of the comparison of drawn means (`h2fdp.reproduction.student`), between the
2.5 and 97.5 percentiles.

A ladder is a list of points; `m` are means over seeds.

| comparison | is | its direction |
|---|---|---|
| difference | m(first) - m(last) | itself |
| least difference, largest difference | the least, the largest of several ladders' differences | itself |
| least rise | the smallest step m(next) - m(one) within any ladder | the least m(last) - m(first) of any ladder |
| least fall | the same of -m | the same of -m |
| gain ratio | (m(first) - m(last)) / (m(second) - m(last)) | the lesser of the two steps down |
| saving | 100 (1 - m(first) / m(last)), in percent | m(last) - m(first) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from h2fdp.reproduction.student import drawn_means
from h2fdp.sweeps.bootstrap import ends_of

Floats = NDArray[np.float64]
Statistic = Callable[[Sequence[Floats]], Floats]  # ladders of means, each (draws, points) -> (draws,)
_LEAST_SEEDS = 2


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; the ends are NaN where one seed is all."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """How points are compared.

    Attributes:
        size: what is compared with the paper's number.
        direction: above zero where a claim has the right sign.
        points: of each ladder at least; exactly, if `exact`.
        unit: None for the measure's own.
    """

    size: Statistic
    direction: Statistic
    points: int = 2
    exact: bool = True
    one_ladder: bool = True
    unit: str | None = None


@dataclass(frozen=True)
class Finding:
    """What a comparison found over `seeds` seeds."""

    size: Estimate
    direction: Estimate
    seeds: int


def _difference(means: Floats) -> Floats:
    return np.asarray(means[:, 0] - means[:, -1])


def _least(of: Callable[[Floats], Floats]) -> Statistic:
    return lambda ladders: np.min([of(means) for means in ladders], axis=0)


def _largest(of: Callable[[Floats], Floats]) -> Statistic:
    return lambda ladders: np.max([of(means) for means in ladders], axis=0)


def _least_step(means: Floats) -> Floats:
    return np.asarray(np.diff(means, axis=1).min(axis=1))


def _gain_ratio(ladders: Sequence[Floats]) -> Floats:
    """Minus infinity where there is no gain to compare with: nothing is a multiple of it."""
    (means,) = ladders
    gain, base = means[:, 0] - means[:, 2], means[:, 1] - means[:, 2]
    ratio = np.divide(gain, base, out=np.full_like(gain, -math.inf), where=base > 0)
    return np.asarray(ratio)


def _saving(ladders: Sequence[Floats]) -> Floats:
    """Minus infinity where what is compared with may cost nothing."""
    (means,) = ladders
    cost, base = means[:, 0], means[:, -1]
    return 100 * (1 - np.divide(cost, base, out=np.full_like(cost, math.inf), where=base > 0))


_DIFFERENCE, _RISE = _least(_difference), _least(lambda means: -_difference(means))
COMPARISONS: Mapping[str, Comparison] = {
    "difference": Comparison(_DIFFERENCE, _DIFFERENCE),
    "least difference": Comparison(_DIFFERENCE, _DIFFERENCE, one_ladder=False),
    "largest difference": Comparison(_largest(_difference), _largest(_difference), one_ladder=False),
    "least rise": Comparison(_least(_least_step), _RISE, exact=False, one_ladder=False),
    "least fall": Comparison(_least(lambda means: _least_step(-means)), _DIFFERENCE, exact=False, one_ladder=False),
    "gain ratio": Comparison(
        _gain_ratio, lambda ladders: -np.diff(ladders[0], axis=1).max(axis=1), points=3, unit="times the gain"
    ),
    "saving": Comparison(_saving, _RISE, unit="%"),
}


def find(comparison: Comparison, ladders: Sequence[Floats]) -> Finding:
    """Compare the numbers of runs.

    Args:
        ladders: each of shape (seeds, points), the same seeds in the same order.
    """
    seeds = len(ladders[0])
    means = [ladder.mean(axis=0, keepdims=True) for ladder in ladders]
    if seeds < _LEAST_SEEDS:
        draws = None
    else:
        sizes = np.cumsum([ladder.shape[1] for ladder in ladders])[:-1]
        draws = np.split(drawn_means(np.concatenate(ladders, axis=1)), sizes, axis=1)
    return Finding(_estimate(comparison.size, means, draws), _estimate(comparison.direction, means, draws), seeds)


def _estimate(of: Statistic, means: Sequence[Floats], draws: Sequence[Floats] | None) -> Estimate:
    value = float(of(means)[0])
    if draws is None:
        return Estimate(value, math.nan, math.nan)
    with np.errstate(invalid="ignore"):  # between two infinities
        low, high = ends_of(of(draws))
    return Estimate(value, -math.inf if math.isnan(low) else float(low), math.inf if math.isnan(high) else float(high))
