"""A figure for a paper as values: its lines and what stands at its axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

_MOST_STEPS = 8
_NEAREST = 0.05  # between ticks, of the axis: labels need room
_ASIDE = 0.018  # of the axis, that a line is moved so that its error bars do not hide those of the next one


@dataclass(frozen=True)
class Line:
    """A line of the figure.

    Attributes:
        x: numbers; for an axis of words, their places.
        mean, low, high: in the measure's unit; low and high NaN where there is no interval.
    """

    label: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class PaperFigure:
    """What is drawn.

    Attributes:
        lines: one for each value of a key, or one.
        words: below the axis, where it is no axis of numbers.
        banded: intervals are bands, else error bars.
        logarithmic: the x axis.
        at_values: ticks stand at the values that x has, where there is room for that.
        y_counts: y counts something, so that ticks between whole numbers mean nothing.
        bounds: what y cannot go beyond; null for no bound.
    """

    lines: tuple[Line, ...]
    x_title: str
    y_title: str
    words: tuple[str, ...] = ()
    banded: bool = False
    logarithmic: bool = False
    y_counts: bool = False
    at_values: bool = False
    bounds: tuple[float | None, float | None] = (None, None)

    @property
    def x_ticks(self) -> tuple[float, ...]:
        """Where the ticks of x are, if at its values; empty where an axis finds its own.

        >>> lines = (Line("", (0.0, 0.25, 1.0), (1.0, 1.0, 1.0), (), ()),)
        >>> PaperFigure(lines, "x", "y", at_values=True).x_ticks, PaperFigure(lines, "x", "y").x_ticks
        ((0.0, 0.25, 1.0), ())
        """
        ticks = tuple(sorted({x for line in self.lines for x in line.x}))
        if not self.at_values or len(ticks) < 2:
            return ticks if self.at_values else ()
        axis = [math.log(x) if self.logarithmic else x for x in ticks]
        return ticks if min(b - a for a, b in pairwise(axis)) >= _NEAREST * (axis[-1] - axis[0]) else ()

    def dodged(self) -> tuple[Line, ...]:
        """The lines, moved aside from each other a little where they have error bars.

        >>> lines = [Line(name, (0.0, 1.0), (5.0, 5.0), (4.0, 4.0), (6.0, 6.0)) for name in "ab"]
        >>> [line.x for line in PaperFigure(tuple(lines), "x", "y").dodged()]
        [(-0.009, 0.991), (0.009, 1.009)]
        """
        places = [x for line in self.lines for x in line.x]
        if self.banded or len(self.lines) < 2 or min(places) == max(places):
            return self.lines
        span = math.log(max(places) / min(places)) if self.logarithmic else max(places) - min(places)
        moved = []
        for number, line in enumerate(self.lines):
            aside = (number - (len(self.lines) - 1) / 2) * _ASIDE * span
            xs = tuple(x * math.exp(aside) if self.logarithmic else round(x + aside, 12) for x in line.x)
            moved.append(replace(line, x=xs))
        return tuple(moved)

    @property
    def x_step(self) -> int | None:
        """Between the ticks of an axis on which every point is a whole number; null for any other axis."""
        x = [each for line in self.lines for each in line.x]
        if self.words or self.logarithmic or self.x_ticks or not x or not all(float(each).is_integer() for each in x):
            return None
        return whole_step(max(x) - min(x))

    @property
    def y_step(self) -> int | None:
        """The same of y, where it counts something."""
        ends = [each for line in self.lines for of in (line.low, line.mean, line.high) for each in of if each == each]
        return whole_step(max(ends) - min(ends)) if self.y_counts and ends else None

    def cut_range(self) -> tuple[float | None, float | None]:
        """Where the y axis ends because intervals, which know no bounds, go beyond those of y; null where they do not.

        >>> line = Line("", (1.0,), (20.0,), (-5.0,), (45.0,))
        >>> PaperFigure((line,), "x", "%", bounds=(0.0, 100.0)).cut_range()
        (0.0, None)
        """
        low, high = self.bounds
        is_low = low is not None and any(each < low for line in self.lines for each in line.low)
        is_high = high is not None and any(each > high for line in self.lines for each in line.high)
        return low if is_low else None, high if is_high else None


def whole_step(span: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... of which eight reach over the span.

    >>> whole_step(3), whole_step(9), whole_step(160), whole_step(161)
    (1, 2, 20, 50)
    """
    least = max(span / _MOST_STEPS, 1.0)
    power: int = 10 ** int(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
