"""Matrices in colours: maps of a report, and who holds which labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Picture
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from h2fdp.records.atomic import output_file
from h2fdp.reports.pictures import STYLE, new_picture

SUFFIXES = (".png", ".pdf")
_MOST_NAMED = 30
_DECADE = 20  # numbers that differ by more are drawn on a logarithmic scale


def as_written(texts: Iterable[Text]) -> None:
    """Names from outside are no formulas, whatever dollars are in them."""
    for text in texts:
        text.set_parse_math(False)


def matrix(
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
    picture, axes = new_picture()
    values = np.ma.masked_invalid(np.array(values, dtype=float))
    mesh = axes.pcolormesh(columns, range(len(rows)), values, cmap=colours, norm=norm, shading="nearest")
    step = -(-len(rows) // _MOST_NAMED)
    axes.set_yticks(range(0, len(rows), step), rows[::step], fontsize=5 if len(rows) > 15 else 7)
    as_written(axes.get_yticklabels())
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel(titles[0])
    axes.set_ylabel(titles[1])
    whole = not isinstance(norm, LogNorm) and bool((values.compressed() % 1 == 0).all())
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
    with style.context(STYLE), output_file(path, "--out", SUFFIXES):
        shown = np.where(counts > 0, counts, np.nan)
        picture = matrix(shown, ("label", "", "records (white: none)"), range(classes), names, norm=norm)
        picture.set_figheight(min(6.0, max(2.2, 0.1 * devices + 0.8)))
        picture.axes[0].set_xticks(range(0, classes, -(-classes // 20)))
        picture.savefig(path)
    return path
