"""Figures as pictures, in the paper's layout: its panels, once for each data set and each column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture

from experiments.reproduction.figures_file import COLUMNS
from experiments.reproduction.panels import draw_panel, symbols
from experiments.reproduction.plan import FigurePart, Reproduction
from experiments.reproduction.results import Results
from h2fdp.errors import UserError

_PANEL_IN = (3.3, 3.0)


def draw(of: Reproduction, figure: str, results: Mapping[FigurePart, Results], path: Path) -> bool:
    """Draw what there is of a figure; false where that is nothing.

    A figure of one panel has data sets as rows and columns side by side; one of several has a row for each data set
    and column.

    Raises:
        UserError: the file cannot be written.
    """
    panels = of.file.figures[figure].panels
    parts = [part for part in of.parts([figure], of.file.data_sets) if part in results and len(results[part].table)]
    if not parts or not panels:
        return False
    cells = [[(part, panel) for panel in panels] for part in parts]
    if len(panels) == 1:
        data_sets = dict.fromkeys(part.data_set for part in parts)
        cells = [[cell for row in cells for cell in row if cell[0].data_set == data_set] for data_set in data_sets]
    width = max(map(len, cells))
    picture = Picture(figsize=(_PANEL_IN[0] * max(width, 1.2), _PANEL_IN[1] * len(cells) + 0.3), layout="constrained")
    FigureCanvasAgg(picture)
    grid = picture.subplots(len(cells), width, squeeze=False, sharey="row" if len(panels) == 1 else False)
    for row, axes_row in zip(cells, grid, strict=True):
        for axes in axes_row[len(row) :]:
            axes.axis("off")
        for (part, panel), axes in zip(row, axes_row, strict=False):
            draw_panel(axes, panel, results[part])
            axes.grid(alpha=0.3, linewidth=0.5)
            axes.set_axisbelow(True)
            head = f"{of.file.data_sets[part.data_set].title}: {COLUMNS[part.column]}"
            axes.set_title("\n".join(filter(None, (head, symbols(panel.title or "")))), fontsize=8)
            if len(panels) == 1 and axes is not axes_row[0]:
                axes.set_ylabel("")  # they share the axis of the first
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path)) from None
    return True
