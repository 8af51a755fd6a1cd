"""A picture of who holds which labels: a row for each device, a column for each label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Picture
from numpy.typing import NDArray

from h2fdp.errors import UserError
from h2fdp.reports.pictures import STYLE, as_written

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
