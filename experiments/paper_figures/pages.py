"""Every figure of a report as PNG and PDF, 3.5 inches wide: accuracy and loss over each axis, matrices, networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator

from experiments.paper_figures.matrices import SUFFIXES, as_written, matrix
from h2fdp.network import draw
from h2fdp.records.atomic import output_file
from h2fdp.reports.figures import AXES, Curve, CurveChart, Explorer, Figure, Series
from h2fdp.reports.network import MOST_DRAWN
from h2fdp.reports.pictures import STYLE, add_legend, look_of, new_picture
from h2fdp.reports.writing import content

_EVERY_AXIS = ("accuracy", "loss")  # figures that are drawn over each axis
_MOST_NAMED = 12  # curves, in a legend


def write_pages(runs: Sequence[Path], folder: Path, with_private: bool = False) -> list[Path]:
    """Write the figures of a report of runs, or of a sweep; see `h2fdp.report`.

    Raises:
        UserError: no such runs, or a folder that cannot be written.
    """
    _, sections, every, networks = content(runs, with_private)
    written = write_pictures([figure for part in sections for figure in part.figures], every, folder)
    for number, topology in enumerate(networks[:MOST_DRAWN]):
        for suffix in SUFFIXES:
            draw(topology, path := folder / f"network-{number}{suffix}")
            written.append(path)
    return written


def write_pictures(figures: Sequence[Figure], every: Sequence[Series], folder: Path) -> list[Path]:
    """Write each figure that has axes.

    Returns:
        The files, two for each picture.

    Raises:
        UserError: the folder cannot be written.
    """
    written = []
    with style.context(STYLE):
        for name, picture in _pictures(figures, every):
            for path in (folder / f"{name}{suffix}" for suffix in SUFFIXES):
                with output_file(path, "--out"):
                    picture.savefig(path)
                written.append(path)
    return written


def _pictures(figures: Sequence[Figure], every: Sequence[Series]) -> Iterator[tuple[str, Picture]]:
    for each in figures:
        if isinstance(each, CurveChart):
            several = each.key in _EVERY_AXIS
            for x in (each.x,) if each.x else AXES if several else ("interval",):
                if (picture := _curves(each, every, x)) is not None:
                    yield f"{each.key}-{x}" if several else each.key, picture
        elif isinstance(each, Explorer) and len(each.keys) == 2:
            for metric in each.metrics:
                yield f"grid-{metric}", _grid(each, metric)


def _curves(chart: CurveChart, every: Sequence[Series], x: str) -> Picture | None:
    """Lines with bands; None where nothing is known over this axis."""
    picture, axes = new_picture()
    labels, alone, least = chart.labels(), len(every) == 1, math.inf
    for curve in chart.curves:
        series = every[curve.series]
        if not (rows := _rows(curve, series, x)):
            continue
        label = f"{series.name}, {curve.label}" if len(labels) > 1 else series.name
        if alone:
            label = curve.label if len(labels) > 1 else ""
        along, mean, low, high = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        look = look_of(curve.style if alone else curve.series, curve.style)
        if alone and len(rows) > 1:
            look["marker"] = ""
        step = max(1, len(rows) // 8)
        drawstyle = "steps-mid" if curve.stepped else "default"
        axes.plot(along, mean, label=label, markevery=(2 * curve.series % step, step), drawstyle=drawstyle, **look)
        step_of_band = "mid" if curve.stepped else None
        axes.fill_between(along, low, high, color=look["color"], alpha=0.2, linewidth=0, step=step_of_band)
        least = min(least, float(mean.min()))
    if not axes.lines:
        return None
    if chart.scale == "log":
        axes.set_yscale("log")
    elif least >= 0 and axes.get_ylim()[0] < 0:  # a band of a few seeds can be below
        axes.set_ylim(bottom=0.0)
    for axis, along in ((axes.xaxis, 0), (axes.yaxis, 1)):
        if axis.get_scale() == "linear" and all((line.get_xydata()[:, along] % 1 == 0).all() for line in axes.lines):
            axis.set_major_locator(MaxNLocator(integer=True))  # between whole numbers ticks would mean nothing
    axes.set_xlabel(chart.x_title or AXES[x])
    axes.set_ylabel(chart.y_title)
    handles, names = axes.get_legend_handles_labels()
    if any(names):
        if len(names) > _MOST_NAMED:
            names = [*names[:_MOST_NAMED], f"and {len(names) - _MOST_NAMED} more"]
            handles = [*handles[:_MOST_NAMED], *Picture().add_subplot().plot([], [], " ")]
        as_written(add_legend(picture, handles, names).get_texts())
    return picture


def _rows(curve: Curve, series: Series, x: str) -> list[tuple[float, ...]]:
    """(x, value, lower end, upper end) where both are known."""
    names = (curve.column, *(curve.band or (curve.column, curve.column)))
    columns = (series.columns.get(x, ()), *(series.columns[name] for name in names))
    return [row for row in zip(*columns, strict=False) if row[0] is not None and row[1] is not None]


def _grid(explorer: Explorer, metric: str) -> Picture:
    (x, along), (y, up) = explorer.keys.items()
    title, metric_values = explorer.metrics[metric]
    values: list[list[float | None]] = [[None] * len(along) for _ in up]
    for (column, row), cell in zip(explorer.points, metric_values, strict=True):
        values[row][column] = cell and cell[0]
    picture = matrix(values, (x, y, title), range(len(along)), up, colours="cividis")
    picture.axes[0].set_xticks(range(len(along)), along)
    picture.axes[0].invert_yaxis()
    as_written(picture.axes[0].get_xticklabels())
    return picture
