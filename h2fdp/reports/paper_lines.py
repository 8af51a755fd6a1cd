"""A figure for a paper as values: its lines and what stands at its axes."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    lines: tuple[Line, ...]
    x_title: str
    y_title: str
    words: tuple[str, ...] = ()
    banded: bool = False
    logarithmic: bool = False
