"""A sweep as a table (LaTeX, CSV, Markdown), and as a figure over a swept key or over intervals, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from h2fdp.costs.kinds import extras
from h2fdp.errors import UserError, not_one_of
from h2fdp.reports.figures import AXES, Line, Plot
from h2fdp.reports.sweep_numbers import MEASURES, Cell, SweepNumbers, title_of
from h2fdp.reports.sweep_view import SweepView, encoders_of, word
from h2fdp.wording import SCORED, SCORES

SHOWN = (*SCORES, "epsilon", "energy_j", *(each.column for each in extras()))  # unless others are asked for
TO_TARGET = ("target_intervals", "target_energy_j", "target_clock_s")
_PLUS_MINUS = "±"
_MORE_DIGITS = 2  # that a cell may have beyond two of its interval, so that a column has equal decimals


@dataclass(frozen=True)
class PaperTable:
    """A table as texts and cells.

    Attributes:
        heads: of the columns; `numeric`: which hold numbers.
        rows: a swept value or a cell for each column.
        measures: of each cell's column; empty for values.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    measures: tuple[str, ...]

    def texts(self) -> list[dict[str, str]]:
        """Rows as texts by heading, `70.1 ± 0.8` for a mean and half of its interval."""
        return [dict(zip(self.heads, row, strict=True)) for row in self._texts()]

    def _texts(self) -> list[list[str]]:
        columns = [column_texts(column) for column in zip(*self.rows, strict=True)]
        return [list(row) for row in zip(*columns, strict=True)]

    def values(self) -> list[dict[str, Any]]:
        """Rows by heading with every digit: of a cell its mean, the ends of its interval, and of how many runs."""
        return [
            {head: _value(each, measure) for head, measure, each in zip(self.heads, self.measures, row, strict=True)}
            for row in self.rows
        ]

    def markdown(self) -> str:
        """A table of GitHub's Markdown."""
        lines = [self.heads, ["---:" if measure else "---" for measure in self.measures]]
        lines += [[each.replace("|", "\\|") for each in row] for row in self._texts()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def latex(self) -> str:
        """A `tabular` with the rules of the package booktabs."""
        import pandas as pd

        rows = [
            [f"${text.replace(_PLUS_MINUS, chr(92) + 'pm')}$" if _PLUS_MINUS in text else text for text in row]
            for row in self._texts()
        ]
        style = pd.DataFrame(rows, columns=list(self.heads)).style.hide(axis="index")
        style = style.format(escape="latex-math").format_index(escape="latex-math", axis=1)
        columns = "".join("r" if measure else "l" for measure in self.measures)
        return f"% \\usepackage{{booktabs}}\n{style.to_latex(hrules=True, column_format=columns)}"

    def csv(self) -> str:
        """Comma-separated, every digit: a cell is a column of means, and one for each end of its interval."""
        import pandas as pd

        columns: dict[str, list[Any]] = {}
        for head, measure, *column in zip(self.heads, self.measures, *self.rows, strict=True):
            if not measure:
                columns[head] = [text_of(each) for each in column]
                continue
            cells = [each if isinstance(each, Cell) else Cell(math.nan, math.nan, math.nan, 0, 0) for each in column]
            columns[head] = [each.mean for each in cells]
            columns |= {f"{head}, {end}": [getattr(each, end) for each in cells] for end in ("low", "high")}
            columns[f"{head}, runs"] = [each.known for each in cells]
        return pd.DataFrame(columns).to_csv(index=False)


FORMATS: Mapping[str, Callable[[PaperTable], str]] = {
    ".tex": PaperTable.latex,
    ".csv": PaperTable.csv,
    ".md": PaperTable.markdown,
}


def paper_table(numbers: SweepNumbers, show: Sequence[str] = ()) -> PaperTable:
    """The table of a sweep: a row for each point of its grid, a column for each measure.

    Args:
        show: measures; by default scores, epsilon and energy, and with a target what it cost to reach it.

    Raises:
        UserError: an unknown measure.
    """
    measures = [*show] or [name for name in SHOWN if any(cells[name].known for _, cells in numbers.points)]
    if not show and numbers.target is not None:
        measures += TO_TARGET
    for name in measures:
        check_measure(name, numbers.target, "--show")
    compared = numbers.against is not None
    titles = [title_of(name, numbers.target, difference=compared, score=numbers.score) for name in measures]
    kept = [key for key in numbers.keys if key in numbers.varying()] or list(numbers.keys)
    rows, chosen = list[tuple[Any, ...]](), numbers.choices
    for at, (values, cells) in enumerate(numbers.points):
        stated = [values[key] for key in kept] + [each[at] for each in chosen.values()]
        rows.append((*stated, *(cells[name] for name in measures)))
    named = [*(numbers.heads[key] for key in kept), *(f"{name} chosen" for name in chosen)]
    return PaperTable((*named, *titles), tuple(rows), (*[""] * len(named), *measures))


def check_measure(name: str, target: float | None, option: str) -> None:
    """Refuse what cannot be shown.

    Args:
        option: which names it, for the message.

    Raises:
        UserError: an unknown measure, or one that needs a target where there is none.
    """
    if name not in MEASURES:
        raise UserError(not_one_of(name, list(MEASURES)), option)
    if MEASURES[name].to_target and target is None:
        raise UserError(f"{name} needs a target, as --target 0.7 for accuracy", option)


def column_texts(column: Sequence[Any]) -> list[str]:
    """Cells, or swept values, as texts; all with as many decimals where that takes no more than two digits too many.

    >>> column_texts([Cell(77.2, 75.9, 78.5, 5, 5), Cell(79.691, 79.48, 79.9, 5, 5), Cell(80.0, 80.0, 80.0, 5, 5)])
    ['77.20 ± 1.30', '79.69 ± 0.21', '80']
    """
    decimals = [_decimals(each) for each in column if isinstance(each, Cell) and each.half > 0]
    most = max(decimals, default=0)
    return [text_of(each, most if most - min(decimals, default=0) <= _MORE_DIGITS else None) for each in column]


def _decimals(cell: Cell) -> int:
    """The number of decimals that show two digits of half of the interval."""
    return max(0, 1 - math.floor(math.log10(cell.half)))


def text_of(each: Any, decimals: int | None = None) -> str:
    """A cell, or a swept value, as text.

    Args:
        decimals: of a mean and half of its interval; null for two digits of the latter.

    >>> text_of(Cell(70.123, 69.5, 70.746, 5, 5)), text_of(Cell(float("nan"), 0, 0, 5, 3)), text_of("hfl")
    ('70.12 ± 0.62', '3 of 5', 'hfl')
    """
    if not isinstance(each, Cell):
        return word(each)
    if math.isnan(each.mean):
        return f"{each.known} of {each.runs}" if each.known else "-"
    if math.isnan(each.half) or each.half == 0:
        return f"{each.mean:.4g}"
    decimals = _decimals(each) if decimals is None else decimals
    return f"{each.mean:.{decimals}f} {_PLUS_MINUS} {each.half:.{decimals}f}"


def _value(each: Any, measure: str) -> Any:
    if isinstance(each, Cell):
        return dict(vars(each))
    return None if measure else each


MOST_LINES = 12
_GREEK = {"epsilon": r"$\varepsilon$", "delta": r"$\delta$"}
_RATIO = 50  # between the ends of an axis that is logarithmic by itself


def over_key(
    numbers: SweepNumbers,
    x: str | None = None,
    line: str | None = None,
    measure: str | None = None,
) -> Plot:
    """A measure over a swept key; the x axis is logarithmic where its numbers span a factor of fifty.

    Args:
        x, line: a swept key along the axis, and one whose values are lines of their own; see `axes_of`.

    Raises:
        UserError: an unknown measure, too many lines, no values; see `axes_of`.
    """
    measure = measure or numbers.score.column
    check_measure(measure, numbers.target, "--y")
    x_key, line_key = axes_of(numbers, x, line)
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
    lead = "" if line_key is None else heads[line_key]
    return _checked(
        Plot(
            tuple(_line(label_of(lead, name) if lead else "", found) for name, found in cells.items()),
            heads[x_key] + _differing(numbers),
            title_of(measure, numbers.target, score=numbers.score),
            () if numeric else tuple(places),
            at_values=numeric,
            log_x=numeric and len(values) > 2 and values[0] > 0 and values[-1] / values[0] >= _RATIO,
            bounds=MEASURES[measure].bounds,
        )
    )


def along_runs(sweep: SweepView, numbers: SweepNumbers, x: str, measure: str | None = None) -> Plot:
    """A measure over the intervals of runs, their joules or their simulated seconds: a line for each point of the grid.

    Args:
        numbers: of the points that are drawn.

    Raises:
        UserError: an unknown measure, too many lines, no values.
    """
    measure = measure or numbers.score.column
    if measure not in SCORED:
        raise UserError(f"over {x} {not_one_of(measure, list(SCORED))}", "--y")
    drawn, heads, of = [], numbers.heads, MEASURES[measure]
    kept = [list(map(word, values.values())) for values, _ in numbers.points]
    chosen = [each for each in sweep.points if list(map(word, each.values.values())) in kept]
    names = [[label_of(heads[key], word(value)) for key, value in each.values.items()] for each in chosen]
    for point, parts in zip(chosen, names, strict=True):
        columns = point.series.columns
        rows = [at for at, value in enumerate(columns.get(measure, [])) if value is not None]
        ends = [columns.get(f"{measure}_{end}", [math.nan] * len(columns[measure])) for end in ("low", "high")]
        label = ", ".join(part for at, part in enumerate(parts) if len({each[at] for each in names}) > 1)
        mean, low, high = (tuple(of.factor * float(column[at]) for at in rows) for column in (columns[measure], *ends))
        drawn.append(Line(label, tuple(float(columns[x][at]) for at in rows), mean, low, high))
    plot = Plot(tuple(drawn), AXES[x] + _differing(numbers), of.title, banded=True, bounds=of.bounds)
    return _checked(plot)


def _differing(numbers: SweepNumbers) -> str:
    """More lines of an axis: where points differ in more than their keys, and encoders that no account covers."""
    chosen = f"\n(chosen for each run: {', '.join(numbers.choices)})" if numbers.choices else ""
    encoders = encoders_of(each for summaries in numbers.summaries.values() for each in summaries)
    return chosen + (f"\n({encoders})" if encoders else "")


def label_of(key: str, value: str) -> str:
    """A value of a key in a legend; a dollar of theirs begins no formula.

    >>> print(label_of("epsilon", "0.5"), label_of("price", "$3"))
    $\\varepsilon$ = 0.5 price = \\$3
    """
    head, text = (each.replace("$", r"\$") for each in (key, value))
    return f"{_GREEK.get(key, head)} = {text}"


def axes_of(numbers: SweepNumbers, x: str | None = None, line: str | None = None) -> tuple[str, str | None]:
    """The key along the x axis, and the one with a line for each value; None where a single line has all.

    What is not stated follows from what varies: along x numbers before words, and the key with most values.

    Raises:
        UserError: an unknown key, one key for both, none that varies, or more keys than are drawn or fixed.
    """
    x_key = None if x is None else numbers.key(x, "--x", list(AXES))
    line_key = None if line is None else numbers.key(line, "--line")
    if x_key is not None and x_key == line_key:
        raise UserError(f"expected another key than --x, found {line_key}", "--line")
    values = {key: {word(point[key]): point[key] for point, _ in numbers.points} for key in numbers.varying()}
    free = [key for key in values if key not in (x_key, line_key)]
    free.sort(key=lambda key: (not all(map(_is_number, values[key].values())), -len(values[key])))
    if x_key is None and not free:
        raise UserError(f"no other key varies; expected one of {', '.join([*numbers.keys, *AXES])}, found none", "--x")
    x_key = x_key or free.pop(0)
    line_key = line_key or (free.pop(0) if free else None)
    if free:
        fixed = " ".join(f"--where '{numbers.heads[key]}={next(iter(values[key]))}'" for key in free)
        raise UserError(f"the sweep varies {', '.join(free)} too; expected a value of each, as {fixed}", "--where")
    return x_key, line_key


def _line(label: str, points: Sequence[tuple[float, Cell]]) -> Line:
    finite = sorted(((x, cell) for x, cell in points if not math.isnan(cell.mean)), key=lambda each: each[0])
    columns = [tuple(getattr(cell, name) for _, cell in finite) for name in ("mean", "low", "high")]
    return Line(label, tuple(x for x, _ in finite), columns[0], columns[1], columns[2])


def _checked(figure: Plot) -> Plot:
    if len(figure.lines) > MOST_LINES:
        raise UserError(f"{len(figure.lines)} lines are too many to tell apart; choose values with --where", "--line")
    if not any(line.x for line in figure.lines):
        raise UserError(f"no point has a value of {figure.y_title}")
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
