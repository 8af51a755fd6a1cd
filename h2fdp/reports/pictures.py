"""Figures by matplotlib: of sweeps, as wide as a column of a paper, lines with intervals; of studies, their curve with
the band and the runs, and maps of accuracy by trust and epsilon with joules as contours."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator, NullLocator

from h2fdp.records.atomic import output_file, write_text
from h2fdp.reports.figures import CURVES, DASHES, Line, Plot, marker_of
from h2fdp.wording import SCORES, facts_html, table_html

PLOT_SUFFIXES = (".pdf", ".png", ".svg")
_SIZE_IN = (3.5, 2.4)
_TALLER_IN = 0.17  # for each line of the legend
_NEAREST = 0.05  # between ticks, of the axis: labels need room
_ASIDE = 0.018  # of the axis, that a line is moved so that its error bars do not hide those of the next one
STYLE = Path(__file__).with_name("paper.mplstyle")
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
    """Write it as PDF, PNG or SVG, by the suffix.

    Raises:
        UserError: another suffix, or a file that cannot be written.
    """
    with output_file(path, "--out", PLOT_SUFFIXES), style.context(STYLE):
        drawn(plot).savefig(path)
    return path


def drawn(plot: Plot) -> Picture:
    """The figure of matplotlib."""
    picture, axes = new_picture()
    every = sorted({x for line in plot.lines for x in line.x})
    if plot.log_x:
        axes.set_xscale("log")
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
    if _are_whole(mean for line in plot.lines for mean in line.mean):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    low, high = plot.bounds  # intervals know no bounds
    if low is not None and any(each < low for line in plot.lines for each in line.low):
        axes.set_ylim(bottom=low)
    if high is not None and any(each > high for line in plot.lines for each in line.high):
        axes.set_ylim(top=high)
    axes.set_xlabel(plot.x_title)
    axes.set_ylabel(plot.y_title)
    if any(line.label for line in plot.lines):
        add_legend(picture, *axes.get_legend_handles_labels())
    return picture


def new_picture() -> tuple[Picture, Axes]:
    picture = Picture(figsize=_SIZE_IN, layout="constrained")
    return picture, picture.add_subplot()


def _draw(axes: Axes, plot: Plot, line: Line, number: int, x: Sequence[float]) -> None:
    look = look_of(number, number) | {"label": line.label}
    if not plot.banded:
        halves = [0.0 if math.isnan(high) else high - mean for mean, high in zip(line.mean, line.high, strict=True)]
        axes.errorbar(x, line.mean, halves if any(halves) else None, capsize=2.5, elinewidth=1, **look)
        return
    step = max(1, len(x) // 8)
    marked = (2 * number % step, step)  # markers of equal curves stand side by side
    axes.plot(x, line.mean, markevery=marked, **look)
    axes.fill_between(x, line.low, line.high, color=look["color"], alpha=0.2, linewidth=0)


def look_of(colour: int, dash: int) -> dict[str, Any]:
    """Colour, dash and marker of the line that has these numbers in a figure."""
    return {
        "color": CURVES[colour % len(CURVES)],
        "linestyle": _LINES[DASHES[dash % len(DASHES)]],
        "marker": _MARKERS[marker_of(colour)],
    }


def add_legend(picture: Picture, handles: Sequence[Any], labels: Sequence[str]) -> Legend:
    """Below the axes, in as many columns as there is room for."""
    longest = max(map(len, labels))
    columns = min(len(labels), 1 if longest > 24 else 2 if longest > 14 else 3)
    picture.set_figheight(_SIZE_IN[1] + _TALLER_IN * -(-len(labels) // columns))
    return picture.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)


def _have_room(places: Sequence[float]) -> bool:
    """Whether labels at these places of an axis can be read apart."""
    return all(b - a >= _NEAREST * (places[-1] - places[0]) for a, b in pairwise(places))


def _are_whole(numbers: Iterable[float]) -> bool:
    """Whether ticks between whole numbers would mean nothing."""
    return all(float(each).is_integer() for each in numbers)


_MOST_MAPS = 3


def write_map(study: Mapping[str, Any], path: Path) -> Path:
    """Write the picture of a study, see `Studied.as_dict`, as PDF, PNG or SVG."""
    with output_file(path, "--out", PLOT_SUFFIXES), style.context(STYLE):
        _map_of(study).savefig(path)
    return path


def write_page(study: Mapping[str, Any], path: Path) -> Path:
    """Write a self-contained page: the picture and the table of all networks."""
    with style.context(STYLE):
        file = BytesIO()
        _map_of(study).savefig(file, format="png", dpi=160)
    picture = b64encode(file.getvalue()).decode()
    how = f"{len(study['runs'])} runs make the curve of {len(study['networks'])} networks"
    how = f"all networks were run: {study['depends']}" if study["depends"] else how
    best = {
        "best": ", ".join(f"{key} {each}" for key, each in (study["best"] or {}).items() if key in ("trust", "epsilon"))
    }
    body = [
        facts_html(f"Study: {study['name']}", {"how": how, "judged by": study["score"], **best}),
        f'<img alt="the curve and the map" style="max-width:100%" src="data:image/png;base64,{picture}">',
        table_html("networks", study["networks"], most=10_000),
    ]
    title = escape(f"Study: {study['name']}")
    head = (
        '<meta charset="utf-8"><style>body{font-family:sans-serif;margin:2em}td,th{padding:.1em .7em;text-align:right}'
    )
    write_text(path, f"<!doctype html><title>{title}</title>{head}</style>{''.join(body)}\n")
    return path


def _map_of(study: Mapping[str, Any]) -> Picture:
    import pandas as pd  # takes a second

    networks, runs, score = pd.DataFrame(study["networks"]), pd.DataFrame(study["runs"]), SCORES[study["score"]]
    for frame in (networks, runs):
        known = frame.columns.intersection(["score", "low", "high", "measured"])
        frame[known] = score.factor * frame[known].astype(float)
    networks["read"] = networks["score"].fillna(networks["measured"])
    groups = networks.groupby(["edges", "devices"], sort=False)
    maps = [(size, rows) for size, rows in groups if (rows.get(["trust", "epsilon"], rows[[]]).nunique() > 1).sum() > 1]
    maps = maps[:_MOST_MAPS]
    picture = Picture(figsize=(3.3 * (1 + len(maps)), 2.7), layout="constrained")
    first, *rest = np.atleast_1d(picture.subplots(1, 1 + len(maps))).tolist()
    ordered = networks.sort_values("noise", kind="stable")
    noise = ordered["noise"].tolist()
    first.plot(noise, ordered["score"], color=CURVES[0], label="curve")
    first.fill_between(noise, ordered["low"], ordered["high"], color=CURVES[0], alpha=0.2, linewidth=0)
    first.plot(runs.get("noise", []), runs.get("score", []), ".", color=CURVES[0], label="runs of the curve")
    if ordered["measured"].notna().any():
        first.plot(noise, ordered["measured"], "x", color=CURVES[1], label="networks that were run")
    first.set_xscale("log")
    ticks = [tick for power in range(-9, 10) for tick in (10.0**power, 3 * 10.0**power)]
    within = [each for each in ticks if noise[0] <= each <= noise[-1]]
    first.set_xticks(within, [f"{each:g}" for each in within])
    first.minorticks_off()
    first.set_xlabel("noise in the last model, x")
    first.set_ylabel(score.title)
    first.legend()
    for axes, ((edges, devices), rows) in zip(rest, maps, strict=True):
        once = rows.drop_duplicates(["epsilon", "trust"], keep="last")  # a study may ask for a network twice
        grid, joules = (once.pivot(index="epsilon", columns="trust", values=each) for each in ("read", "joules"))
        ends = {"vmin": networks["read"].min(), "vmax": networks["read"].max()}
        shades = axes.contourf(grid.columns, grid.index, grid, 12, **ends, cmap="viridis")
        if np.ptp(joules.to_numpy()) > 0:
            lines = axes.contour(grid.columns, grid.index, joules, 4, colors="white", linewidths=0.8)
            axes.clabel(lines, fmt="%.3g J", fontsize=6)
        axes.set_yscale("log")
        axes.set_yticks(grid.index, [f"{each:g}" for each in grid.index], minor=False)
        axes.minorticks_off()
        axes.set_xlabel("share of trusted edge servers")
        axes.set_ylabel("epsilon")
        axes.set_title(f"{edges} edge servers, {devices} devices", fontsize=8)
        picture.colorbar(shades, ax=axes, label=score.title)
    return picture
