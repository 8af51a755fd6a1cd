"""Figures as values: which columns of which runs they show, and in which colours. The page and the pictures draw them.

Six colours that stay apart (CIE76 distance of at least 18) for normal, protan, deutan and tritan eyes, on white and on
a dark page, the first ones from Okabe and Ito's palette; each has a dash and a marker of its own, so that nothing is
said by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from h2fdp.config.parsing import values_of
from h2fdp.costs.kinds import COSTS

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
# Those of a light page; page.html has these and the dark ones, paper.mplstyle its lines.
CURVES = ("#0072B2", "#D55E00", "#111111", "#CC79A7", "#332288", "#882255")

Column = list[Any]
Scale = Literal["plain", "linear", "log"]
AXES = {  # columns that a figure can be drawn over, and what they are called
    **{column: f"{each.so_far} ({each.unit})" for column, each in COSTS.items() if each.so_far},
    "interval": "interval k",
    "slot": "slot t (local steps)",
}
UNITS = {"interval": "intervals", "slot": "slots"} | {column: each.units for column, each in COSTS.items()}  # of axes


@dataclass(frozen=True)
class Series:
    """One run, or one point of a sweep's grid.

    Attributes:
        name: as the reader knows it.
        columns: name -> values; those of one table have equal lengths, None where there is no value.
    """

    name: str
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class Curve:
    """A column of a series as a line.

    Attributes:
        series: its number among the report's series.
        column: the column that is drawn.
        label: its name in the figure's legend.
        style: the number of the label in the figure: its dash and, in a report of one series, its colour.
        band: columns of the lower and the upper end of a band around the line.
        words: a column of texts shown with each point.
        stepped: a value holds for the whole interval.
    """

    series: int
    column: str
    label: str
    style: int = 0
    band: tuple[str, str] | None = None
    words: str | None = None
    stepped: bool = False


@dataclass(frozen=True)
class CurveChart:
    """Lines over an axis that the reader chooses, or over one column.

    Attributes:
        y_title: the quantity with its unit.
        x: a column; None for the chosen one of `AXES`.
        scale: of the y axis at first: `log` where values span decades; `plain` offers no logarithm.
    """

    kind: ClassVar[Literal["curves"]] = "curves"
    key: str
    title: str
    caption: str
    y_title: str
    curves: Sequence[Curve]
    x: str | None = None
    x_title: str = ""
    scale: Scale = "plain"

    def labels(self) -> dict[int, str]:
        """Style -> label, for the legend."""
        return {curve.style: curve.label for curve in sorted(self.curves, key=lambda curve: curve.style)}


@dataclass(frozen=True)
class Drawing:
    """A picture that needs no script: `svg` is an element of the page."""

    kind: ClassVar[Literal["drawing"]] = "drawing"
    key: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Explorer:
    """A table of a sweep's grid that the reader looks at along any of its keys.

    Attributes:
        keys: swept keys -> their values in order, as texts.
        points: for each point of the grid the positions of its values, one for each key.
        metrics: name of a number -> (title, a (mean, low, high) for each point; None where unknown).
    """

    kind: ClassVar[Literal["explorer"]] = "explorer"
    key: str
    title: str
    caption: str
    keys: Mapping[str, Sequence[str]]
    points: Sequence[Sequence[int]]
    metrics: Mapping[str, tuple[str, Sequence[tuple[float, float, float] | None]]]


Figure = CurveChart | Drawing | Explorer


@dataclass(frozen=True)
class Table:
    """Numbers and words in rows; the first column names the row."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class ReportSection:
    """A part of a report.

    Attributes:
        tables: title -> table, shown open.
        folded: title -> table or text, shown when asked for.
        footnote: a sentence in small print at the end.
    """

    key: str
    title: str
    lead: str
    figures: Sequence[Figure] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    folded: Mapping[str, Table | str] = field(default_factory=dict)
    footnote: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a plot.

    Attributes:
        x: numbers; for an axis of words, their places.
        mean, low, high: low and high NaN where there is no interval.
    """

    label: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """Lines with their intervals.

    Attributes:
        words: below the axis, where it is no axis of numbers.
        banded: intervals are bands, else error bars.
        log_x: a logarithmic axis.
        at_values: ticks stand at the values that x has, where there is room for that.
        bounds: of y; null for no bound.
    """

    lines: tuple[Line, ...]
    x_title: str
    y_title: str
    words: tuple[str, ...] = ()
    banded: bool = False
    log_x: bool = False
    at_values: bool = False
    bounds: tuple[float | None, float | None] = (None, None)


def known(series: Series, column: str) -> bool:
    """Whether there is anything in a column."""
    return any(value is not None for value in series.columns.get(column, ()))


def curves_of(
    every: Sequence[Series], column: str, label: str, style: int = 0, words: str | None = None, stepped: bool = False
) -> list[Curve]:
    """A column of every series that has it; with a band where the series has its ends (`_low`, `_high`)."""
    curves = []
    for place, series in enumerate(every):
        if known(series, column):
            ends = (f"{column}_low", f"{column}_high")
            band = ends if all(known(series, end) for end in ends) else None
            said = words if words is not None and words in series.columns else None
            curves.append(Curve(place, column, label, style, band, said, stepped))
    return curves


def chart(key: str, every: Sequence[Series], more: str = "") -> CurveChart:
    """A figure of `figures.yaml`.

    Args:
        more: sentences that follow its caption.
    """
    values = _figures()[key]
    stated = {name: value for name, value in values.items() if name != "look"}
    curves: list[Curve] = []
    for style, (column, label) in enumerate(values["curves"].items()):
        curves += curves_of(every, column, label, style, **values.get("look", {}))
    return CurveChart(key, **stated | {"caption": values["caption"] + more, "curves": curves})


@cache
def _figures() -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = values_of(Path(__file__).with_name("figures.yaml").read_text())
    return figures


def places(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly spread, the first and the last among them.

    >>> places(3, 10), places(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def marker_of(at: int) -> str:
    """Series that share a colour have different markers."""
    return MARKERS[(at + at // len(MARKERS)) % len(MARKERS)]


def number(value: float) -> str:
    """A number in four digits.

    >>> number(0.123456), number(3.0), number(1e-5), number(123456.0)
    ('0.1235', '3', '1e-05', '123,500')
    """
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
