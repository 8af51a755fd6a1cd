"""Comparisons of points, each with a 95 % interval over seeds.

Points are compared under the same seeds: what differs between seeds - networks, trust, data - does not blur a
difference within them. An interval lies between the 2.5 and 97.5 percentiles of the comparison of drawn means
(`student.py`). The least of k numbers is below a bound as soon as one of them is, and above it only if
all are: its interval goes from the least of their low ends to the least of their high ends, these taken at the level
divided by k (Bonferroni); the largest is its mirror image. Where seeds were added after looks at the intervals, the
level is divided by the number of looks too: the interval at which one stopped then covers at least as often as one of
a fixed number of seeds.

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

from experiments.reproduction.student import drawn_means
from h2fdp.reports.sweep_numbers import CONFIDENCE

Floats = NDArray[np.float64]
_LEAST_SEEDS = 2
_BEYOND = (1 - CONFIDENCE) / 2


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; the ends are NaN where one seed is all."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Quantity:
    """A number from means over seeds: one of, the least of, or the largest of several.

    Attributes:
        of: means of one ladder, shape (draws, points) -> these numbers, shape (draws, numbers); NaN where there is no
            such number, which then may be any.
    """

    of: Callable[[Floats], Floats]
    largest: bool = False


@dataclass(frozen=True)
class Comparison:
    """How points are compared.

    Attributes:
        size: what is compared with the paper's number.
        direction: above zero where a claim has the right sign.
        named: what the direction is, in words, where it is another number than the size and has the measure's unit.
        points: of each ladder at least; exactly, if `exact`.
        unit: None for the measure's own.
    """

    size: Quantity
    direction: Quantity
    points: int = 2
    exact: bool = True
    one_ladder: bool = True
    unit: str | None = None
    named: str = ""


@dataclass(frozen=True)
class Finding:
    """What a comparison found over `seeds` seeds."""

    size: Estimate
    direction: Estimate
    seeds: int


def _difference(means: Floats) -> Floats:
    return means[:, :1] - means[:, -1:]


def _rise(means: Floats) -> Floats:
    return means[:, -1:] - means[:, :1]


def _steps(means: Floats) -> Floats:
    return np.diff(means, axis=1)


def _steps_down(means: Floats) -> Floats:
    return -np.diff(means, axis=1)


def _gain_ratio(means: Floats) -> Floats:
    """Nothing is a multiple of no gain."""
    return _ratio(means[:, :1] - means[:, 2:], means[:, 1:2] - means[:, 2:])


def _saving(means: Floats) -> Floats:
    return 100 * (1 - _ratio(means[:, :1], means[:, -1:]))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full_like(above, math.nan), where=below > 0)


_DIFFERENCE, _LARGEST, _RISE = Quantity(_difference), Quantity(_difference, largest=True), Quantity(_rise)
COMPARISONS: Mapping[str, Comparison] = {
    "difference": Comparison(_DIFFERENCE, _DIFFERENCE),
    "least difference": Comparison(_DIFFERENCE, _DIFFERENCE, one_ladder=False),
    "largest difference": Comparison(_LARGEST, _LARGEST, one_ladder=False),
    "least rise": Comparison(Quantity(_steps), _RISE, exact=False, one_ladder=False, named="first to last"),
    "least fall": Comparison(Quantity(_steps_down), _DIFFERENCE, exact=False, one_ladder=False, named="first to last"),
    "gain ratio": Comparison(
        Quantity(_gain_ratio), Quantity(_steps_down), points=3, unit="times the gain", named="lesser gain"
    ),
    "saving": Comparison(Quantity(_saving), _RISE, unit="%"),
}


def find(comparison: Comparison, ladders: Sequence[Floats], looks: int = 1) -> Finding:
    """Compare the numbers of runs.

    Args:
        ladders: each of shape (seeds, points), the same seeds in the same order.
        looks: how often intervals are looked at, seeds being added where they are too wide.
    """
    seeds = len(ladders[0])
    means = [ladder.mean(axis=0, keepdims=True) for ladder in ladders]
    if seeds < _LEAST_SEEDS:
        draws = None
    else:
        sizes = np.cumsum([ladder.shape[1] for ladder in ladders])[:-1]
        draws = np.split(drawn_means(np.concatenate(ladders, axis=1)), sizes, axis=1)
    size, direction = (_estimate(each, means, draws, looks) for each in (comparison.size, comparison.direction))
    return Finding(size, direction, seeds)


def _estimate(quantity: Quantity, means: Sequence[Floats], draws: Sequence[Floats] | None, looks: int) -> Estimate:
    pick = np.max if quantity.largest else np.min
    found = _numbers(quantity, means, -math.inf)
    value, count = float(pick(found)), found.shape[1]
    if draws is None:
        return Estimate(value, math.nan, math.nan)
    beyond = _BEYOND / looks
    below, above = (beyond / count, beyond) if quantity.largest else (beyond, beyond / count)
    low = pick(_quantile(_numbers(quantity, draws, -math.inf), below))
    high = pick(_quantile(_numbers(quantity, draws, math.inf), 1 - above))
    return Estimate(value, float(low), float(high))


def _numbers(quantity: Quantity, ladders: Sequence[Floats], unknown: float) -> Floats:
    """All numbers of all ladders, shape (draws, numbers); missing ones count as the worst."""
    found = np.concatenate([quantity.of(means) for means in ladders], axis=1)
    return np.where(np.isnan(found), unknown, found)


def _quantile(numbers: Floats, level: float) -> Floats:
    """Of each column; a draw's own value, so that infinite ones are no trouble."""
    return np.asarray(np.quantile(numbers, level, axis=0, method="lower" if level < 0.5 else "higher"))
