"""A figure for a paper as values: its lines and what stands at its axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

_MOST_STEPS = 8


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
    bounds: tuple[float | None, float | None] = (None, None)

    @property
    def x_step(self) -> int | None:
        """Between the ticks of an axis on which every point is a whole number; null for any other axis."""
        x = [each for line in self.lines for each in line.x]
        if self.words or self.logarithmic or not x or not all(float(each).is_integer() for each in x):
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
