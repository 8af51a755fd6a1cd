"""A figure of a sweep for a paper: a measure over a swept key, with error bars, or over intervals, with bands."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.errors import UserError
from h2fdp.reports.figures import AXES
from h2fdp.reports.paper_table import OUT, check_measure, check_suffix, output_file
from h2fdp.reports.study_numbers import MEASURES, Cell, StudyNumbers, title_of
from h2fdp.reports.sweep_view import SweepView, shortened_keys, shown, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".pdf", ".png", ".svg", ".pgf")
MOST_LINES = 12
_TEX_SYSTEMS = ("pdflatex", "lualatex", "xelatex")
_WIDTH_IN = 3.5
_GOLDEN = 0.68
_NEAREST = 0.05  # between ticks, of the axis: labels need room
_ASIDE = 0.018  # of the axis, that a line is moved so that its error bars do not hide those of the next one
_ALONG_A_RUN = {"accuracy": 100.0, "loss": 1.0}  # measures that can be drawn over intervals, and their factors
_GREEK = {"epsilon": r"$\varepsilon$", "delta": r"$\delta$"}
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
        lines: one for each value of a key, or one.
        words: below the axis, where it is no axis of numbers.
        banded: intervals are bands, else error bars.
        logarithmic: the x axis.
        at_values: ticks stand at the values that x has, where there is room for that.
        y_counts: y counts something, so that ticks between whole numbers mean nothing.
        bounds: what y cannot go beyond; null for no bound.
    """

    lines: tuple[Line, ...]
    x_title: str
    y_title: str
    words: tuple[str, ...] = ()
    banded: bool = False
    logarithmic: bool = False
    y_counts: bool = False
    at_values: bool = False
    bounds: tuple[float | None, float | None] = (None, None)


def over_key(
    numbers: StudyNumbers,
    x: str | None = None,
    line: str | None = None,
    measure: str = "accuracy",
    labels: Mapping[str, str] | None = None,
) -> PaperFigure:
    """A measure over a swept key; the x axis is logarithmic where its numbers span a factor of fifty.

    Args:
        x: a swept key; null for the only one that varies, or the first of numbers.
        line: a swept key whose values are lines of their own.
        labels: other words for keys, measures and lines.

    Raises:
        UserError: an unknown key, measure or label, one key for both, keys that are neither drawn nor fixed, too many
            lines, nothing known.
    """
    check_measure(measure, numbers.target, "--y")
    words = dict(labels or {})
    numbers.check_labels(words)
    line_key = None if line is None else numbers.key(line, "--line")
    x_key = _x_key(numbers, x, line_key)
    if x_key == line_key:
        raise UserError(f"expected another key than --x, found {line_key}", "--line")
    free = [key for key in numbers.varying() if key not in (x_key, line_key)]
    if free:
        hint = f"choose one as --line, or a value with --where {free[0]}=VALUE"
        raise UserError(f"the sweep varies {', '.join(free)} too; {hint}", "--x")
    values = list({word(point[x_key]): point[x_key] for point, _ in numbers.points}.values())
    numeric = all(map(_is_number, values))
    if numeric:
        values.sort()
    places = {word(each): float(each) if numeric else float(at) for at, each in enumerate(values)}
    cells: dict[str, list[tuple[float, Cell]]] = {}
    for point, found in numbers.points:
        name = "" if line_key is None else word(point[line_key])
        cells.setdefault(name, []).append((places[word(point[x_key])], found[measure]))
    heads = numbers.heads
    lead = "" if line_key is None else words.get(line_key, words.get(heads[line_key], heads[line_key]))
    drawn = [
        _line(words.get(name, label_of(lead, name, words) if lead else ""), found) for name, found in cells.items()
    ]
    return _checked(
        PaperFigure(
            tuple(drawn),
            words.get(x_key, words.get(heads[x_key], heads[x_key])),
            words.get(measure, title_of(measure, numbers.target)),
            () if numeric else tuple(words.get(each, words.get(shown(each), shown(each))) for each in places),
            at_values=numeric,
            logarithmic=numeric and _spans(values),
            y_counts=MEASURES[measure].counts,
            bounds=MEASURES[measure].bounds,
        )
    )


def along_runs(
    sweep: SweepView,
    x: str,
    measure: str = "accuracy",
    where: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> PaperFigure:
    """A measure over the intervals of runs, their joules or their simulated seconds: a line for each point of the grid.

    Args:
        where: key -> value, of the points that are drawn.
        labels: other words for keys, their values, the axis and the measure.

    Raises:
        UserError: an unknown axis or measure, too many lines, nothing known.
    """
    if measure not in _ALONG_A_RUN:
        raise UserError(f"over {x} expected one of {', '.join(_ALONG_A_RUN)}, found {measure}", "--y")
    factor, drawn, words = _ALONG_A_RUN[measure], [], dict(labels or {})
    short = shortened_keys(sweep.keys)
    chosen = [each for each in sweep.points if all(word(each.values[k]) == v for k, v in (where or {}).items())]
    pairs = list(zip(short, sweep.keys, strict=True))
    heads = {key: words.get(key, words.get(head, head)) for head, key in pairs}
    names = [[label_of(heads[key], word(each.values[key]), words) for _, key in pairs] for each in chosen]
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
    titles = words.get(x, AXES[x]), words.get(measure, MEASURES[measure].title)
    bounds = MEASURES[measure].bounds
    return _checked(PaperFigure(tuple(drawn), *titles, banded=True, bounds=bounds))


def label_of(key: str, value: str, words: Mapping[str, str]) -> str:
    """A value of a key in a legend.

    >>> print(label_of("epsilon", "0.5", {}), label_of("$p_c$", "1", {}), label_of("method", "hfl", {"hfl": "HFL"}))
    $\\varepsilon$ = 0.5 $p_c$ = 1 HFL
    """
    return words.get(value, words.get(shown(value), f"{_GREEK.get(key, key)} = {shown(value)}"))


def _x_key(numbers: StudyNumbers, x: str | None, line: str | None) -> str:
    if x is not None:
        return numbers.key(x, "--x")
    free = [key for key in numbers.varying() if key != line]
    if len(free) > 1:  # numbers span an axis
        free = [key for key in free if all(_is_number(point[key]) for point, _ in numbers.points)][:1] or free
    if len(free) != 1:
        raise UserError(f"expected one of {', '.join(free or numbers.keys) or '(no key is swept)'}, found none", "--x")
    return free[0]


def _line(label: str, found: Sequence[tuple[float, Cell]]) -> Line:
    known = sorted(((x, cell) for x, cell in found if not math.isnan(cell.mean)), key=lambda each: each[0])
    columns = [tuple(getattr(cell, name) for _, cell in known) for name in ("mean", "low", "high")]
    return Line(label, tuple(x for x, _ in known), columns[0], columns[1], columns[2])


def _checked(figure: PaperFigure) -> PaperFigure:
    if len(figure.lines) > MOST_LINES:
        raise UserError(f"{len(figure.lines)} lines are too many to tell apart; choose values with --where", "--line")
    if not any(line.x for line in figure.lines):
        raise UserError(f"no point has a value of {figure.y_title}")
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spans(values: Sequence[Any]) -> bool:
    return len(values) > 2 and min(values) > 0 and max(values) / min(values) >= _RATIO


def write_figure(figure: PaperFigure, path: Path) -> Path:
    """Write it as PDF, PNG, SVG, or as PGF for LaTeX, by the suffix.

    Raises:
        UserError: another suffix, no LaTeX for PGF, a label that is no formula, or a file that cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_pgf import LatexError

    from h2fdp.reports.pictures import STYLE

    check_suffix(path, SUFFIXES)
    system = next(filter(shutil.which, _TEX_SYSTEMS), None)
    is_pgf = path.suffix == ".pgf"
    if is_pgf and system is None:
        raise UserError(f"a .pgf file needs LaTeX ({', '.join(_TEX_SYSTEMS)}), which measures its texts", OUT)
    tex = {"pgf.texsystem": system, "pgf.rcfonts": False, "axes.unicode_minus": False} if is_pgf else {}
    with output_file(path), rc_context(STYLE | tex):
        try:
            drawn(figure).savefig(path)
        except (ValueError, LatexError) as error:  # of mathtext or LaTeX
            lines = str(error).strip().splitlines()
            said = next((line for line in lines if line.startswith("!")), lines[-1])
            raise UserError(f"invalid TeX in a label: {said}", "--label") from None
    return path


def drawn(figure: PaperFigure) -> Figure:
    """The figure of matplotlib."""
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import MaxNLocator, NullLocator

    picture = Picture(figsize=(_WIDTH_IN, _GOLDEN * _WIDTH_IN), layout="constrained")
    axes = picture.add_subplot()
    every = sorted({x for line in figure.lines for x in line.x})
    if figure.logarithmic:
        axes.set_xscale("log")
    span = math.log(every[-1] / every[0]) if figure.logarithmic else every[-1] - every[0]
    for number, line in enumerate(figure.lines):
        aside = 0.0 if figure.banded else (number - (len(figure.lines) - 1) / 2) * _ASIDE * span
        moved = [x * math.exp(aside) if figure.logarithmic else x + aside for x in line.x]
        _draw_line(axes, line, moved, number, figure.banded)
    if figure.words:
        axes.set_xticks(range(len(figure.words)), figure.words)
        axes.margins(x=0.12)
    elif figure.at_values and _have_room([math.log(x) for x in every] if figure.logarithmic else every):
        axes.set_xticks(every, [f"{each:g}" for each in every])
        axes.xaxis.set_minor_locator(NullLocator())
    elif not figure.logarithmic and all(float(x).is_integer() for x in every):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if figure.y_counts:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    low, high = figure.bounds  # intervals know no bounds
    if low is not None and any(each < low for line in figure.lines for each in line.low):
        axes.set_ylim(bottom=low)
    if high is not None and any(each > high for line in figure.lines for each in line.high):
        axes.set_ylim(top=high)
    axes.set_xlabel(figure.x_title)
    axes.set_ylabel(figure.y_title)
    if len(figure.lines) > 1 or figure.lines[0].label:
        longest = max(len(line.label) for line in figure.lines)
        columns = min(len(figure.lines), 1 if longest > 24 else 2 if longest > 14 else 3)
        picture.set_figheight(_GOLDEN * _WIDTH_IN + 0.17 * -(-len(figure.lines) // columns))
        picture.legend(loc="outside lower center", ncols=columns)
    return picture


def _have_room(places: Sequence[float]) -> bool:
    """Whether labels at these places of an axis can be told apart."""
    return all(b - a >= _NEAREST * (places[-1] - places[0]) for a, b in pairwise(places))


def _draw_line(axes: Axes, line: Line, x: Sequence[float], number: int, banded: bool) -> None:
    from h2fdp.reports.pictures import line_look

    look = line_look(number)
    if banded:
        axes.plot(x, line.mean, label=line.label, markevery=max(1, len(x) // 8), **look)
        axes.fill_between(x, line.low, line.high, color=look["color"], alpha=0.18, linewidth=0)
        return
    halves = [0.0 if math.isnan(high) else high - mean for mean, high in zip(line.mean, line.high, strict=True)]
    axes.errorbar(x, line.mean, halves if any(halves) else None, label=line.label, capsize=2.5, elinewidth=1, **look)
