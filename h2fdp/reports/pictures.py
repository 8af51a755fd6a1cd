"""Pictures for papers by matplotlib, a column wide: lines with intervals, matrices, every figure of a page."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_pgf import LatexError
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Picture
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from h2fdp.errors import UserError
from h2fdp.records.atomic import output_file
from h2fdp.reports.figures import (
    AXES,
    CURVES,
    DASHES,
    Curve,
    CurveChart,
    Explorer,
    Figure,
    Heatmap,
    Line,
    Plot,
    Series,
    marker_of,
)

PLOT_SUFFIXES = (".pdf", ".png", ".svg", ".pgf")
SUFFIXES = (".png", ".pdf")  # of the figures of a page
MOST_LEGEND_LINES = 12
_TEX_SYSTEMS = ("pdflatex", "lualatex", "xelatex")
_SIZE_IN = (3.5, 2.4)
_TALLER_IN = 0.17  # for each line of the legend
_NEAREST = 0.05  # between ticks, of the axis: labels need room
_ASIDE = 0.018  # of the axis, that a line is moved so that its error bars do not hide those of the next one
_MOST_NAMED = 30
_DECADE = 20  # numbers that differ by more are drawn on a logarithmic scale
_EVERY_AXIS = ("accuracy", "loss")  # figures that are drawn over each axis
_STYLE = Path(__file__).with_name("paper.mplstyle")
_LINES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.5)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 2)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "cross": "P"}


def write_figure(plot: Plot, path: Path) -> Path:
    """Write it as PDF, PNG, SVG, or as PGF for LaTeX, by the suffix.

    Raises:
        UserError: another suffix, no LaTeX for PGF, a label that is no formula, or a file that cannot be written.
    """
    system = next(filter(shutil.which, _TEX_SYSTEMS), None)
    is_pgf = path.suffix == ".pgf"
    if is_pgf and system is None:
        raise UserError(f"a .pgf file needs LaTeX ({', '.join(_TEX_SYSTEMS)}), which measures its texts", "--out")
    tex: dict[str, Any] = {"pgf.texsystem": system, "pgf.rcfonts": False, "axes.unicode_minus": False} if is_pgf else {}
    with output_file(path, "--out", PLOT_SUFFIXES), style.context([_STYLE, tex]):
        try:
            drawn(plot).savefig(path)
        except (ValueError, LatexError) as error:  # of mathtext or LaTeX
            lines = str(error).strip().splitlines()
            said = next((line for line in lines if line.startswith("!")), lines[-1])
            raise UserError(f"invalid TeX in a label: {said}", "--label") from None
    return path


def drawn(plot: Plot, *, formulas: bool = True) -> Picture:
    """The figure of matplotlib.

    Args:
        formulas: what is between dollars in labels is one; else they are texts from outside.
    """
    picture, axes = _new()
    every = sorted({x for line in plot.lines for x in line.x})
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    span = math.log(every[-1] / every[0]) if plot.log_x else every[-1] - every[0]
    for number, line in enumerate(plot.lines):
        aside = 0.0 if plot.banded else (number - (len(plot.lines) - 1) / 2) * _ASIDE * span
        _draw(axes, plot, line, number, [x * math.exp(aside) if plot.log_x else x + aside for x in line.x])
    if plot.words:
        axes.set_xticks(range(len(plot.words)), plot.words)
        axes.margins(x=0.12)
    elif plot.at_values and _have_room([math.log(x) for x in every] if plot.log_x else every):
        axes.set_xticks(every, [f"{each:g}" for each in every])
        axes.xaxis.set_minor_locator(NullLocator())
    elif not plot.log_x and _are_whole(every):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not plot.log_y and _are_whole(mean for line in plot.lines for mean in line.mean):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    low, high = plot.bounds  # intervals know no bounds
    if low is not None and any(each < low for line in plot.lines for each in line.low):
        axes.set_ylim(bottom=low)
    if high is not None and any(each > high for line in plot.lines for each in line.high):
        axes.set_ylim(top=high)
    axes.set_xlabel(plot.x_title)
    axes.set_ylabel(plot.y_title)
    _legend(picture, axes, plot.lines, formulas)
    return picture


def _new() -> tuple[Picture, Axes]:
    picture = Picture(figsize=_SIZE_IN, layout="constrained")
    return picture, picture.add_subplot()


def _draw(axes: Axes, plot: Plot, line: Line, number: int, x: Sequence[float]) -> None:
    colour, dash = line.look or (number, number)
    look: dict[str, Any] = {
        "color": CURVES[colour % len(CURVES)],
        "linestyle": _LINES[DASHES[dash % len(DASHES)]],
        "marker": _MARKERS[marker_of(colour)] if line.marked else "",
        "label": line.label,
    }
    if not plot.banded:
        halves = [0.0 if math.isnan(high) else high - mean for mean, high in zip(line.mean, line.high, strict=True)]
        axes.errorbar(x, line.mean, halves if any(halves) else None, capsize=2.5, elinewidth=1, **look)
        return
    step = max(1, len(x) // 8)
    marked = (2 * number % step, step)  # markers of equal curves stand side by side
    axes.plot(x, line.mean, markevery=marked, drawstyle="steps-mid" if plot.stepped else "default", **look)
    shape: Any = "mid" if plot.stepped else None
    axes.fill_between(x, line.low, line.high, color=look["color"], alpha=0.2, linewidth=0, step=shape)


def _legend(picture: Picture, axes: Axes, lines: Sequence[Line], formulas: bool) -> None:
    if not any(line.label for line in lines):
        return
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > MOST_LEGEND_LINES:
        labels = [*labels[:MOST_LEGEND_LINES], f"and {len(labels) - MOST_LEGEND_LINES} more"]
        handles = [*handles[:MOST_LEGEND_LINES], Picture().add_subplot().plot([], [], " ")[0]]
    longest = max(map(len, labels))
    columns = min(len(labels), 1 if longest > 24 else 2 if longest > 14 else 3)
    picture.set_figheight(_SIZE_IN[1] + _TALLER_IN * -(-len(labels) // columns))
    legend = picture.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
    if not formulas:
        as_written(legend.get_texts())


def _have_room(places: Sequence[float]) -> bool:
    """Whether labels at these places of an axis can be read apart."""
    return all(b - a >= _NEAREST * (places[-1] - places[0]) for a, b in pairwise(places))


def _are_whole(numbers: Iterable[float]) -> bool:
    """Whether ticks between whole numbers would mean nothing."""
    return all(float(each).is_integer() for each in numbers)


def as_written(texts: Iterable[Text]) -> None:
    """Names from outside are no formulas, whatever dollars are in them."""
    for text in texts:
        text.set_parse_math(False)


def write_pictures(figures: Sequence[Figure], every: Sequence[Series], folder: Path) -> list[Path]:
    """Write each figure that has axes as PNG and PDF; accuracy and loss over each of `AXES`.

    Returns:
        The files, two for each picture.

    Raises:
        UserError: the folder cannot be written.
    """
    written = []
    with style.context(_STYLE):
        for name, picture in _pictures(figures, every):
            for path in (folder / f"{name}{suffix}" for suffix in SUFFIXES):
                with output_file(path, "--png"):
                    picture.savefig(path)
                written.append(path)
    return written


def _pictures(figures: Sequence[Figure], every: Sequence[Series]) -> Iterator[tuple[str, Picture]]:
    for content in figures:
        if isinstance(content, CurveChart):
            several = content.key in _EVERY_AXIS
            for x in (content.x,) if content.x else AXES if several else ("interval",):
                if lines := _lines(content, every, x):
                    yield f"{content.key}-{x}" if several else content.key, _curves(content, lines, x)
        elif isinstance(content, Heatmap):
            titles = content.x_title, content.y_title, content.z_title
            yield content.key, _matrix(content.values, titles, content.columns, content.rows)
        elif isinstance(content, Explorer) and len(content.keys) == 2:
            for metric in content.metrics:
                yield f"grid-{metric}", _grid(content, metric)


def _lines(content: CurveChart, every: Sequence[Series], x: str) -> list[Line]:
    lines = []
    labels, alone = content.labels(), len(every) == 1
    for curve in content.curves:
        name = every[curve.series].name
        label = f"{name}, {curve.label}" if len(labels) > 1 else name
        if alone:
            label = curve.label if len(labels) > 1 else ""
        lines += _line(curve, every[curve.series], x, label, alone)
    return lines


def _line(curve: Curve, series: Series, x: str, label: str, alone: bool) -> list[Line]:
    """None where nothing is known over this axis."""
    names = (curve.column, *(curve.band or (curve.column, curve.column)))
    rows = [
        row
        for row in zip(series.columns.get(x, ()), *(series.columns[name] for name in names), strict=False)
        if row[0] is not None and row[1] is not None
    ]
    if not rows:
        return []
    along, mean, low, high = zip(*rows, strict=True)
    look = (curve.style if alone else curve.series, curve.style)
    return [Line(label, along, mean, low, high, look, marked=not alone or len(rows) == 1)]


def _curves(content: CurveChart, lines: Sequence[Line], x: str) -> Picture:
    plain = content.scale != "log" and min(min(line.mean) for line in lines) >= 0
    plot = Plot(
        tuple(lines),
        content.x_title or AXES[x],
        content.y_title,
        banded=True,
        stepped=any(curve.stepped for curve in content.curves),
        log_y=content.scale == "log",
        bounds=(0.0 if plain else None, None),  # a band of a few seeds can be below
    )
    return drawn(plot, formulas=False)


def _grid(content: Explorer, metric: str) -> Picture:
    (x, across), (y, up) = content.keys.items()
    title, metric_values = content.metrics[metric]
    values: list[list[float | None]] = [[None] * len(across) for _ in up]
    for (column, row), cell in zip(content.points, metric_values, strict=True):
        values[row][column] = cell and cell[0]
    picture = _matrix(values, (x, y, title), range(len(across)), up, colours="cividis")
    picture.axes[0].set_xticks(range(len(across)), across)
    picture.axes[0].invert_yaxis()
    as_written(picture.axes[0].get_xticklabels())
    return picture


def _matrix(
    values: Any,
    titles: tuple[str, str, str],
    columns: Sequence[float],
    rows: Sequence[str],
    colours: str = "cividis_r",
    norm: Normalize | None = None,
) -> Picture:
    """A matrix in colours, its first row on top; white where nothing is known.

    Args:
        values: (rows, columns); titles: along x, along y, of the colours.
    """
    picture, axes = _new()
    values = np.ma.masked_invalid(np.array(values, dtype=float))
    mesh = axes.pcolormesh(columns, range(len(rows)), values, cmap=colours, norm=norm, shading="nearest")
    step = -(-len(rows) // _MOST_NAMED)
    axes.set_yticks(range(0, len(rows), step), rows[::step], fontsize=5 if len(rows) > 15 else 7)
    as_written(axes.get_yticklabels())
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel(titles[0])
    axes.set_ylabel(titles[1])
    whole = not isinstance(norm, LogNorm) and _are_whole(values.compressed())
    picture.colorbar(mesh, label=titles[2], ticks=MaxNLocator(nbins=6, integer=True) if whole else None)
    return picture


def draw_holdings(counts: NDArray[np.int64], names: Sequence[str], path: Path) -> Path:
    """Draw numbers of records; white where a device holds none of a label.

    Args:
        counts: (devices, classes); names: of the devices.
        path: a .png or .pdf file.

    Raises:
        UserError: another suffix, or a file that cannot be written.
    """
    devices, classes = counts.shape
    most, least = int(counts.max()), int(counts[counts > 0].min())
    lowest = min(1, most - 1)  # what is white is on no scale
    norm = Normalize(lowest, most) if most < _DECADE * least else LogNorm(1, most)
    with style.context(_STYLE), output_file(path, "--png", SUFFIXES):
        shown = np.where(counts > 0, counts, np.nan)
        picture = _matrix(shown, ("label", "", "records (white: none)"), range(classes), names, norm=norm)
        picture.set_figheight(min(6.0, max(2.2, 0.1 * devices + 0.8)))
        picture.axes[0].set_xticks(range(0, classes, -(-classes // 20)))
        picture.savefig(path)
    return path
