"""Other words in a table or a figure of a sweep, and a swept key across the columns of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from h2fdp.errors import UserError, hint
from h2fdp.reports.figures import AXES, Plot
from h2fdp.reports.paper import PaperTable, label_of
from h2fdp.reports.sweep_numbers import MEASURES, Cell, SweepNumbers, title_of
from h2fdp.reports.sweep_view import word

Words = Mapping[str, str]  # a key, a value of one or a measure -> another word for it


def labels_of(texts: Sequence[str], numbers: SweepNumbers) -> dict[str, str]:
    """`NAME=TEXT` each.

    Raises:
        UserError: one has no equals sign, or is about what the sweep does not have.
    """
    if bad := [each for each in texts if "=" not in each]:
        raise UserError(f"expected NAME=TEXT, found {bad[0]}", "--label")
    labels = {name.strip(): text for name, _, text in (each.partition("=") for each in texts)}
    values = {word(values[key]) for values, _ in numbers.points for key in numbers.keys}
    names = [*numbers.heads.values(), *numbers.keys, *sorted(values), *MEASURES, *AXES]
    for name in labels:
        if name not in names:
            text = f"expected a swept key, one of its values or a measure, found {name}{hint(name, names)}"
            raise UserError(text, "--label")
    return labels


def heads_in(numbers: SweepNumbers, words: Words) -> dict[str, str]:
    """The package's word of each key, measure and axis that has another one -> that."""
    heads = {head: words[name] for key, head in numbers.heads.items() for name in (head, key) if name in words}
    paired = numbers.against is not None
    titles = {title_of(each, numbers.target, difference=paired): words[each] for each in MEASURES if each in words}
    return heads | titles | {title: words[axis] for axis, title in AXES.items() if axis in words}


def table_in(table: PaperTable, numbers: SweepNumbers, words: Words) -> PaperTable:
    """A table in other words."""
    heads = heads_in(numbers, words)
    rows = [
        tuple(each if isinstance(each, Cell) else words.get(word(each), each) for each in row) for row in table.rows
    ]
    return replace(table, heads=tuple(heads.get(each, each) for each in table.heads), rows=tuple(rows))


def plot_in(plot: Plot, numbers: SweepNumbers, words: Words) -> Plot:
    """A figure in other words; what is between dollars of these is a formula."""
    heads, lines = heads_in(numbers, words), {}
    for values, _ in numbers.points:
        for key, value in values.items():
            if key in numbers.keys:
                head, text = numbers.heads[key], word(value)
                called = words.get(text, label_of(head, text).replace(head, heads.get(head, head), 1))
                lines[label_of(head, text)] = called

    def line_in(label: str) -> str:
        for before in sorted(lines, key=len, reverse=True):
            label = label.replace(before, lines[before])
        return label

    x_title, *more = plot.x_title.split("\n")
    return replace(
        plot,
        lines=tuple(replace(line, label=line_in(line.label)) for line in plot.lines),
        x_title="\n".join([heads.get(x_title, x_title), *more]),
        y_title=heads.get(plot.y_title, plot.y_title),
        words=tuple(words.get(each, each) for each in plot.words),
    )


def across(table: PaperTable, numbers: SweepNumbers, key: str) -> PaperTable:
    """The table of one measure with a column for each value of a swept key; `-` where no run has it.

    Raises:
        UserError: no such key, or several measures.
    """
    head = numbers.heads[numbers.key(key, "--across")]
    if head not in table.heads:
        raise UserError(f"expected a key with several values, found {key}", "--across")
    measures = [at for at, measure in enumerate(table.measures) if measure]
    if len(measures) != 1:
        raise UserError("shows one measure, expected one --show", "--across")
    at, cell = table.heads.index(head), measures[0]
    kept = [place for place in range(len(table.heads)) if place not in (at, cell)]
    values = list(dict.fromkeys(word(row[at]) for row in table.rows))
    found: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in table.rows:
        found.setdefault(tuple(word(row[place]) for place in kept), {})[word(row[at])] = row[cell]
    heads = (*(table.heads[place] for place in kept), *(f"{head} {value}" for value in values))
    rows = tuple((*names, *(cells.get(value, "-") for value in values)) for names, cells in found.items())
    return PaperTable(heads, rows, (*[""] * len(kept), *[table.measures[cell]] * len(values)))
