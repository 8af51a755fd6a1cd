"""A figure for a paper as a file: PDF, PNG, or LaTeX for pgfplots."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.errors import UserError
from h2fdp.reports.output_file import check_suffix, output_file
from h2fdp.reports.paper_lines import Line, PaperFigure
from h2fdp.reports.pgfplots import pgf_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".pdf", ".png", ".pgf", ".tex")
_GOLDEN = 0.68


def write_figure(figure: PaperFigure, path: Path, width_in: float = 3.5) -> Path:
    """Write it as PDF, PNG or LaTeX (pgfplots), by the suffix.

    Raises:
        UserError: another suffix, or a file that cannot be written.
    """
    check_suffix(path, SUFFIXES)
    with output_file(path):
        if path.suffix in (".pgf", ".tex"):
            path.write_text(pgf_text(figure, width_in))
        else:
            _draw(figure, path, width_in)
    return path


def _draw(figure: PaperFigure, path: Path, width_in: float) -> None:
    """With matplotlib, in the style of all pictures."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    from h2fdp.reports.pictures import STYLE

    with rc_context(STYLE):
        picture = Picture(figsize=(width_in, _GOLDEN * width_in), layout="constrained")
        FigureCanvasAgg(picture)
        axes = picture.add_subplot()
        for number, line in enumerate(figure.dodged()):
            _draw_line(axes, line, number, figure.banded)
        if figure.logarithmic:
            axes.set_xscale("log")
        if figure.x_ticks:
            axes.set_xticks(figure.x_ticks, [f"{each:g}" for each in figure.x_ticks])
            axes.xaxis.set_minor_locator(_no_ticks())
        if figure.words:
            axes.set_xticks(range(len(figure.words)), figure.words)
            axes.margins(x=0.12)
        for axis, step in ((axes.xaxis, figure.x_step), (axes.yaxis, figure.y_step)):
            if step is not None:
                axis.set_major_locator(_every(step))
        axes.set_ylim(*figure.cut_range())
        axes.set_xlabel(figure.x_title)
        axes.set_ylabel(figure.y_title)
        if len(figure.lines) > 1 or figure.lines[0].label:
            labels = [line.label for line in figure.lines]
            columns = 1 if max(map(len, labels)) > 24 else min(len(labels), 3 if max(map(len, labels)) <= 14 else 2)
            rows = -(-len(labels) // columns)
            picture.set_figheight(_GOLDEN * width_in + 0.17 * rows)
            picture.legend(loc="outside lower center", ncols=columns)
        try:
            picture.savefig(path)
        except ValueError as error:  # matplotlib's, of a formula that is none
            raise UserError(f"a label is no formula of TeX: {str(error).strip().splitlines()[-1]}", "--label") from None


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _every(step: int) -> Any:
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(step)


def _draw_line(axes: Axes, line: Line, number: int, banded: bool) -> None:
    from h2fdp.reports.pictures import line_look

    look = line_look(number)
    if banded:
        look["markevery"] = max(1, len(line.x) // 8)
        axes.plot(line.x, line.mean, label=line.label, **look)
        axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.18, linewidth=0)
        return
    halves = [0.0 if math.isnan(high) else high - mean for mean, high in zip(line.mean, line.high, strict=True)]
    bars = halves if any(halves) else None
    axes.errorbar(line.x, line.mean, bars, label=line.label, capsize=2.5, elinewidth=1, **look)
