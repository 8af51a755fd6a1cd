"""A figure of a sweep for a paper: a measure over a swept key, with error bars, or over intervals, with bands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from h2fdp.errors import UserError
from h2fdp.reports.figures import AXES, Line, Plot
from h2fdp.reports.paper_table import check_measure
from h2fdp.reports.study_numbers import MEASURES, Cell, StudyNumbers, title_of
from h2fdp.reports.sweep_view import SweepView, shortened_keys, word

MOST_LINES = 12
_ALONG_A_RUN = {"accuracy": 100.0, "loss": 1.0}  # measures that can be drawn over intervals, and their factors
_GREEK = {"epsilon": r"$\varepsilon$", "delta": r"$\delta$"}
_RATIO = 50  # between the ends of an axis that is logarithmic by itself


def over_key(
    numbers: StudyNumbers,
    x: str | None = None,
    line: str | None = None,
    measure: str = "accuracy",
    labels: Mapping[str, str] | None = None,
) -> Plot:
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
        Plot(
            tuple(drawn),
            words.get(x_key, words.get(heads[x_key], heads[x_key])),
            words.get(measure, title_of(measure, numbers.target)),
            () if numeric else tuple(words.get(each, each) for each in places),
            at_values=numeric,
            log_x=numeric and _spans(values),
            bounds=MEASURES[measure].bounds,
        )
    )


def along_runs(
    sweep: SweepView,
    x: str,
    measure: str = "accuracy",
    where: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Plot:
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
        mean, low, high = (tuple(factor * float(held[at]) for at in rows) for held in (columns[measure], *ends))
        drawn.append(Line(label, tuple(float(columns[x][at]) for at in rows), mean, low, high))
    titles = words.get(x, AXES[x]), words.get(measure, MEASURES[measure].title)
    bounds = MEASURES[measure].bounds
    return _checked(Plot(tuple(drawn), *titles, banded=True, bounds=bounds))


def label_of(key: str, value: str, words: Mapping[str, str]) -> str:
    """A value of a key in a legend.

    >>> print(label_of("epsilon", "0.5", {}), label_of("$p_c$", "1", {}), label_of("method", "hfl", {"hfl": "HFL"}))
    $\\varepsilon$ = 0.5 $p_c$ = 1 HFL
    """
    return words.get(value, f"{_GREEK.get(key, key)} = {value}")


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


def _checked(figure: Plot) -> Plot:
    if len(figure.lines) > MOST_LINES:
        raise UserError(f"{len(figure.lines)} lines are too many to tell apart; choose values with --where", "--line")
    if not any(line.x for line in figure.lines):
        raise UserError(f"no point has a value of {figure.y_title}")
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spans(values: Sequence[Any]) -> bool:
    return len(values) > 2 and min(values) > 0 and max(values) / min(values) >= _RATIO
