"""Pictures for papers in one style, a column wide: every figure of a report, and who holds which labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from h2fdp.errors import UserError
from h2fdp.reports.figures import AXES, DASHES, LIGHT, Curve, CurveChart, Explorer, Figure, Heatmap, Series, marker_of

_MOST_NAMED = 30
_DECADE = 20  # numbers that differ by more are drawn on a logarithmic scale


def draw_holdings(counts: NDArray[np.int64], names: Sequence[str], path: Path) -> Path:
    """Draw numbers of records; white where a device holds none of a label.

    Args:
        counts: (devices, classes); names: of the devices.
        path: a .png or .pdf file.

    Raises:
        UserError: another suffix, or a file that cannot be written.
    """
    if path.suffix not in (".png", ".pdf"):
        raise UserError(f"expected a file that ends in .png or .pdf, found {path.name}", "--png")
    devices, classes = counts.shape
    with rc_context(STYLE):
        picture = Picture(figsize=(3.5, min(6.0, max(2.2, 0.1 * devices + 0.8))), layout="constrained")
        FigureCanvasAgg(picture)
        axes = picture.add_subplot()
        held = np.ma.masked_equal(counts, 0)
        most, least = int(counts.max()), int(counts[counts > 0].min())
        lowest = min(1, most - 1)  # what is white is on no scale
        norm = Normalize(lowest, most) if most < _DECADE * least else LogNorm(1, most)
        mesh = axes.pcolormesh(range(classes), range(devices), held, cmap="cividis_r", norm=norm, shading="nearest")
        axes.grid(False)
        axes.invert_yaxis()
        step = -(-devices // _MOST_NAMED)
        axes.set_yticks(range(0, devices, step), names[::step], fontsize=5 if devices > 15 else 7)
        as_written(axes.get_yticklabels())
        axes.set_xticks(range(0, classes, -(-classes // 20)))
        axes.set_xlabel("label")
        picture.colorbar(mesh, label="records (white: none)")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.savefig(path)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", str(path), "--png") from None
    return path


SUFFIXES = (".png", ".pdf")
MOST_LEGEND_LINES = 12
_SIZE_IN = (3.5, 2.5)
_SHORT_LABEL = 27  # characters; two such labels stand side by side
_TALLER_IN = 0.17  # for each line of the legend
_EVERY_AXIS = ("accuracy", "loss")  # figures that are drawn over each axis
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.grid": True,
    "grid.color": LIGHT.grid,
    "grid.linewidth": 0.6,
    "axes.edgecolor": LIGHT.faint,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}
_LINES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.5)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 2)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "cross": "P"}


def write_pictures(figures: Sequence[Figure], every: Sequence[Series], folder: Path) -> list[Path]:
    """Write each figure that has axes as PNG and PDF; accuracy and loss over each of `AXES`.

    Returns:
        The files, two for each picture.

    Raises:
        UserError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with rc_context(STYLE):
            for name, picture in _pictures(figures, every):
                for suffix in SUFFIXES:
                    written.append(folder / f"{name}{suffix}")
                    picture.savefig(written[-1])
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(folder), "--png") from None
    return written


def _pictures(figures: Sequence[Figure], every: Sequence[Series]) -> Iterator[tuple[str, Picture]]:
    for content in figures:
        if isinstance(content, CurveChart):
            names = AXES if content.key in _EVERY_AXIS else ("interval",)
            for x in (content.x,) if content.x else names:
                if any(x in every[curve.series].columns for curve in content.curves):
                    yield (
                        content.key if len(names) == 1 or content.x else f"{content.key}-{x}",
                        _curves(content, every, x),
                    )
        elif isinstance(content, Heatmap):
            yield content.key, _heat(content)
        elif isinstance(content, Explorer) and len(content.keys) == 2:
            for metric in content.metrics:
                yield f"grid-{metric}", _grid(content, metric)


def as_written(texts: Iterable[Text]) -> None:
    """Names from outside are no formulas, whatever dollars are in them."""
    for text in texts:
        text.set_parse_math(False)


def _new() -> tuple[Picture, Axes]:
    picture = Picture(figsize=_SIZE_IN, layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.add_subplot()


def _curves(content: CurveChart, every: Sequence[Series], x: str) -> Picture:
    picture, axes = _new()
    alone = len(every) == 1
    for curve in content.curves:
        _draw(axes, curve, every[curve.series], x, alone)
    axes.set_xlabel(content.x_title or AXES[x])
    axes.set_ylabel(content.y_title)
    if content.scale == "log":
        axes.set_yscale("log")
    shown: list[Any] = [line.get_data() for line in axes.lines]
    for axis, numbers in ((axes.xaxis, [x for x, _ in shown]), (axes.yaxis, [y for _, y in shown])):
        if _are_whole(numbers) and not (axis is axes.yaxis and content.scale == "log"):
            axis.set_major_locator(MaxNLocator(integer=True))
    if content.scale != "log" and axes.get_ylim()[0] < 0 <= min((min(y) for _, y in shown), default=-1):
        axes.set_ylim(bottom=0)  # only a band is below: of a few seeds, which know no bounds
    handles = _handles(content, every, alone)
    if handles:
        short = max(len(str(handle.get_label())) for handle in handles) <= _SHORT_LABEL
        columns = 2 if short and len(handles) > 3 else 1
        picture.set_figheight(_SIZE_IN[1] + _TALLER_IN * -(-len(handles) // columns))
        as_written(picture.legend(handles=handles, loc="outside lower left", ncols=columns).get_texts())
    return picture


def _are_whole(numbers: Sequence[Sequence[float]]) -> bool:
    """Whether ticks between whole numbers would mean nothing."""
    return bool(numbers) and all(float(each).is_integer() for line in numbers for each in line)


def _draw(axes: Axes, curve: Curve, series: Series, x: str, alone: bool) -> None:
    columns = series.columns
    along, values = columns.get(x, []), columns[curve.column]
    kept = [at for at, value in enumerate(values) if value is not None and at < len(along) and along[at] is not None]
    if not kept:
        return
    place = [along[at] for at in kept]
    look = _look(curve.style if alone else curve.series, curve.style)
    mark = _MARKERS[marker_of(curve.series)] if not alone or len(kept) == 1 else ""
    drawn = "steps-mid" if curve.stepped else "default"
    step = max(1, len(kept) // 8)
    marked = (2 * curve.series % step, step)  # markers of equal curves stand beside each other
    axes.plot(place, [values[at] for at in kept], drawstyle=drawn, marker=mark, markevery=marked, **look)
    if curve.band:
        low, high = ([columns[end][at] for at in kept] for end in curve.band)
        axes.fill_between(
            place, low, high, color=look["color"], alpha=0.2, linewidth=0, step="mid" if curve.stepped else None
        )


def _look(number: int, style: int) -> dict[str, Any]:
    return {"color": LIGHT.curves[number % len(LIGHT.curves)], "linestyle": _LINES[DASHES[style % len(DASHES)]]}


def line_look(number: int) -> dict[str, Any]:
    """Colour, dash and marker of a line by its number."""
    return _look(number, number) | {"marker": _MARKERS[marker_of(number)]}


def _handles(content: CurveChart, every: Sequence[Series], alone: bool) -> list[Line2D]:
    """What colours and markers mean, then what dashes mean."""
    labels = content.labels() if len(content.labels()) > 1 else {}
    dashes = [
        Line2D([], [], label=label, **(_look(style if alone else 0, style) | ({} if alone else {"color": LIGHT.ink})))
        for style, label in labels.items()
    ]
    shown = [] if alone else sorted({curve.series for curve in content.curves})
    runs = [
        Line2D([], [], label=every[at].name, marker=_MARKERS[marker_of(at)], **_look(at, 0))
        for at in shown[:MOST_LEGEND_LINES]
    ]
    if len(shown) > MOST_LEGEND_LINES:
        runs.append(Line2D([], [], linestyle="", label=f"and {len(shown) - MOST_LEGEND_LINES} more"))
    return [*runs, *dashes]


def _heat(content: Heatmap) -> Picture:
    picture, axes = _new()
    values = [[float("nan") if each is None else each for each in row] for row in content.values]
    mesh = axes.pcolormesh(content.columns, range(len(content.rows)), values, cmap="cividis_r", shading="nearest")
    step = max(1, len(content.rows) // 20)
    axes.set_yticks(range(0, len(content.rows), step), content.rows[::step])
    as_written(axes.get_yticklabels())
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel(content.x_title)
    axes.set_ylabel(content.y_title)
    picture.colorbar(mesh, label=content.z_title, ticks=MaxNLocator(nbins=6, integer=True))
    return picture


def _grid(content: Explorer, metric: str) -> Picture:
    picture, axes = _new()
    (x, across), (y, up) = content.keys.items()
    title, found = content.metrics[metric]
    values = [[float("nan")] * len(across) for _ in up]
    for (column, row), cell in zip(content.points, found, strict=True):
        if cell is not None:
            values[row][column] = cell[0]
    mesh = axes.pcolormesh(range(len(across)), range(len(up)), values, cmap="cividis", shading="nearest")
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(up)), up)
    as_written([*axes.get_xticklabels(), *axes.get_yticklabels()])
    axes.grid(False)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    picture.colorbar(mesh, label=title)
    return picture
