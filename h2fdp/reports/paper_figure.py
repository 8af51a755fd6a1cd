"""A figure of a sweep for a paper: a measure over a swept key, with error bars, or over intervals, with bands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.errors import UserError
from h2fdp.reports.figures import AXES
from h2fdp.reports.paper_table import check_measure
from h2fdp.reports.pgfplots import pgf_text
from h2fdp.reports.study_numbers import MEASURES, Cell, StudyNumbers, title_of
from h2fdp.reports.sweep_view import SweepView, shortened_keys, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".pdf", ".png", ".pgf", ".tex")
MOST_LINES = 12
_ALONG_A_RUN = {"accuracy": 100.0, "loss": 1.0}  # measures that can be drawn over intervals, and their factors
_GOLDEN = 0.68
_RATIO = 50  # between the ends of an axis that is logarithmic by itself


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
        lines: at most `MOST_LINES`.
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

    def write(self, path: Path, width_in: float = 3.5) -> Path:
        """Write it as PDF, PNG or LaTeX (pgfplots), by the suffix.

        Raises:
            UserError: another suffix, or a file that cannot be written.
        """
        if path.suffix not in SUFFIXES:
            raise UserError(f"expected a file that ends in {', '.join(SUFFIXES)}, found {path.name}", "--out")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".pgf", ".tex"):
                path.write_text(pgf_text(self, width_in))
            else:
                _draw(self, path, width_in)
        except ValueError as error:  # matplotlib's, of a formula that is none
            raise UserError(f"a label is no formula of TeX: {str(error).strip().splitlines()[-1]}", "--label") from None
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", str(path), "--out") from None
        return path


def over_key(
    numbers: StudyNumbers,
    x: str | None = None,
    line: str | None = None,
    measure: str = "accuracy",
    labels: Mapping[str, str] | None = None,
    logarithmic: bool | None = None,
) -> PaperFigure:
    """A measure over a swept key.

    Args:
        x: a swept key; null for the only one that varies.
        line: a swept key whose values are lines of their own.
        labels: other words for keys, measures and lines.
        logarithmic: the x axis; null: where its numbers span a factor of fifty.

    Raises:
        UserError: an unknown key or measure, keys that are neither drawn nor fixed, too many lines, nothing known.
    """
    check_measure(measure, numbers.target)
    words = dict(labels or {})
    line_key = None if line is None else numbers.key(line)
    x_key = _x_key(numbers, x, line_key)
    free = [key for key in numbers.varying() if key not in (x_key, line_key)]
    if free:
        hint = f"choose one as --line, or a value with --where {free[0]}=VALUE"
        raise UserError(f"the sweep varies {', '.join(free)} too; {hint}")
    values = list({word(point[x_key]): point[x_key] for point, _ in numbers.points}.values())
    numeric = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values)
    if numeric:
        values.sort()
    places = {word(each): float(each) if numeric else float(at) for at, each in enumerate(values)}
    cells: dict[str, list[tuple[float, Cell]]] = {}
    for point, found in numbers.points:
        name = "" if line_key is None else word(point[line_key])
        cells.setdefault(name, []).append((places[word(point[x_key])], found[measure]))
    heads = numbers.heads
    lead = "" if line_key is None else words.get(line_key, words.get(heads[line_key], heads[line_key]))
    drawn = [_line(words.get(name, f"{lead} {name}".strip()), found) for name, found in cells.items()]
    return _checked(
        PaperFigure(
            tuple(drawn),
            words.get(x_key, words.get(heads[x_key], heads[x_key])),
            words.get(measure, title_of(measure, numbers.target)),
            () if numeric else tuple(words.get(each, each) for each in places),
            logarithmic=bool(numeric and (_spans(values) if logarithmic is None else logarithmic)),
        )
    )


def along_runs(
    sweep: SweepView, x: str, measure: str = "accuracy", where: Mapping[str, str] | None = None
) -> PaperFigure:
    """A measure over the intervals of runs, their joules or their simulated seconds: a line for each point of the grid.

    Args:
        where: key -> value, of the points that are drawn.

    Raises:
        UserError: an unknown axis or measure, too many lines, nothing known.
    """
    if measure not in _ALONG_A_RUN:
        raise UserError(f"over {x} expected one of {', '.join(_ALONG_A_RUN)}, found {measure}", "--y")
    factor, drawn = _ALONG_A_RUN[measure], []
    short = shortened_keys(sweep.keys)
    chosen = [each for each in sweep.points if all(word(each.values[k]) == v for k, v in (where or {}).items())]
    pairs = list(zip(short, sweep.keys, strict=True))
    names = [[f"{head} {word(each.values[key])}" for head, key in pairs] for each in chosen]
    for point, parts in zip(chosen, names, strict=True):
        columns = point.series.columns
        rows = [at for at, value in enumerate(columns.get(measure, [])) if value is not None]
        ends = [columns.get(f"{measure}_{end}", [math.nan] * len(columns[measure])) for end in ("low", "high")]
        label = ", ".join(part for at, part in enumerate(parts) if len({each[at] for each in names}) > 1)
        drawn.append(
            Line(
                label,
                tuple(float(columns[x][at]) for at in rows),
                *(tuple(factor * float(held[at]) for at in rows) for held in (columns[measure], *ends)),
            )
        )
    return _checked(PaperFigure(tuple(drawn), AXES[x], MEASURES[measure].title, banded=True))


def _x_key(numbers: StudyNumbers, x: str | None, line: str | None) -> str:
    if x is not None:
        return numbers.key(x)
    free = [key for key in numbers.varying() if key != line]
    if len(free) != 1:
        raise UserError(f"expected --x, one of {', '.join(free or numbers.keys) or '(no key is swept)'}")
    return free[0]


def _line(label: str, found: Sequence[tuple[float, Cell]]) -> Line:
    known = sorted(((x, cell) for x, cell in found if not math.isnan(cell.mean)), key=lambda each: each[0])
    columns = [tuple(getattr(cell, name) for _, cell in known) for name in ("mean", "low", "high")]
    return Line(label, tuple(x for x, _ in known), columns[0], columns[1], columns[2])


def _checked(figure: PaperFigure) -> PaperFigure:
    if len(figure.lines) > MOST_LINES:
        raise UserError(f"{len(figure.lines)} lines are too many to tell apart; choose values with --where")
    if not any(line.x for line in figure.lines):
        raise UserError(f"no point has a value of {figure.y_title}")
    return figure


def _spans(values: Sequence[Any]) -> bool:
    return len(values) > 2 and min(values) > 0 and max(values) / min(values) >= _RATIO


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
        for number, line in enumerate(figure.lines):
            _draw_line(axes, line, number, figure.banded)
        if figure.logarithmic:
            axes.set_xscale("log")
            ticks = sorted({x for line in figure.lines for x in line.x})
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.xaxis.set_minor_locator(_no_ticks())
        if figure.words:
            axes.set_xticks(range(len(figure.words)), figure.words)
            axes.margins(x=0.12)
        axes.set_xlabel(figure.x_title)
        axes.set_ylabel(figure.y_title)
        if len(figure.lines) > 1 or figure.lines[0].label:
            labels = [line.label for line in figure.lines]
            columns = 1 if max(map(len, labels)) > 24 else min(len(labels), 3 if max(map(len, labels)) <= 14 else 2)
            rows = -(-len(labels) // columns)
            picture.set_figheight(_GOLDEN * width_in + 0.17 * rows)
            picture.legend(loc="outside lower center", ncols=columns)
        picture.savefig(path)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


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
