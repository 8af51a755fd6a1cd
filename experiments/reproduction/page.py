"""The generated part of the page of a reproduction: every claim, what was found, the verdict, and what made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.reproduction.evaluation import JudgedClaim, Row, has_runs
from experiments.reproduction.figures_file import COLUMNS, Column
from experiments.reproduction.plan import Reproduction
from experiments.reproduction.verdict import OPEN, Verdict
from experiments.reproduction.wording import found_words, paper_words


@dataclass(frozen=True)
class FigureResults:
    """What a figure has for the page.

    Attributes:
        picture: a path relative to the page; None where nothing was drawn.
        made: the commands and commits that made its runs.
        accounted: column -> the largest accounted epsilon of its runs, in units of their target epsilon.
    """

    picture: str | None
    made: Sequence[str]
    accounted: Mapping[Column, float]


def details(
    of: Reproduction, rows: Sequence[Row], detailed: Container[str], figures: Mapping[str, FigureResults]
) -> str:
    """The region of the results: totals, and a section for each figure.

    Args:
        detailed: the data sets that the sections are about; the totals have all that were run.
    """
    return "\n".join(_body(of, rows, detailed, figures))


def _body(
    of: Reproduction, rows: Sequence[Row], detailed: Container[str], figures: Mapping[str, FigureResults]
) -> Iterator[str]:
    yield from _totals(of, [row for row in rows if row.data_set in detailed or has_runs(rows, row.data_set)])
    for name, figure in of.file.figures.items():
        own = [row for row in rows if row.claim.figure == name and row.data_set in detailed]
        if not own:
            continue
        results = figures.get(name, FigureResults(None, (), {}))
        head = "" if figure.apart else f"Figure {name.removeprefix('fig')}: "
        yield f"\n### {head}{figure.title}\n"
        if results.picture:
            yield f"![{figure.title}]({results.picture})\n"
        yield from _table(of, own)
        yield from _not_run(of, own)
        shares = [f"{share:.3g} ({COLUMNS[column]})" for column, share in results.accounted.items()]
        if shares:
            words = ", ".join(shares)
            yield f"\nLargest accounted epsilon of any observer in any run, divided by the target epsilon: {words}."
        for note in results.made:
            yield f"\nMade by {note}."


def _totals(of: Reproduction, rows: Sequence[Row]) -> Iterator[str]:
    """How many claims there are of each verdict: of the paper by data set and column, and of other papers."""
    columns: dict[str, list[JudgedClaim]] = {}
    for row in rows:
        apart = of.file.figures[row.claim.figure].apart
        for column, judged in row.columns.items():
            head = "other papers" if apart else f"{of.file.data_sets[row.data_set].title}, {COLUMNS[column]}"
            if not judged.absent:
                columns.setdefault(head, []).append(judged)
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for verdict in Verdict:
        if verdict is Verdict.FAILS:
            for remark in OPEN:
                counts = (sum(judged.remark == remark for judged in column) for column in columns.values())
                yield f"| {remark} | " + " | ".join(map(str, counts)) + " |"
        yield f"| {verdict} | " + " | ".join(_count(verdict, column) for column in columns.values()) + " |"


def _count(verdict: Verdict, column: Iterable[JudgedClaim]) -> str:
    """Of those that are decided, with how many of them have which remark."""
    found = [judged for judged in column if judged.verdict is verdict and judged.remark not in OPEN]
    remarks = Counter(judged.remark for judged in found if judged.remark)
    return ", ".join([str(len(found)), *(f"{count} {remark}" for remark, count in remarks.items())])


def _table(of: Reproduction, rows: Iterable[Row]) -> Iterator[str]:
    yield "| claim | source | data | paper | " + " | ".join(f"{words} | verdict" for words in COLUMNS.values()) + " |"
    yield "|---" * (4 + 2 * len(COLUMNS)) + "|"
    for row in rows:
        cells = [row.claim.words, row.claim.source, of.file.data_sets[row.data_set].title, paper_words(row)]
        for column in COLUMNS:
            judged = row.columns[column]
            cells += [found_words(row.claim, judged), "–" if judged.absent else _verdict(judged)]
        yield "| " + " | ".join(cells) + " |"


def _verdict(judged: JudgedClaim) -> str:
    """In bold, its remark aside."""
    if judged.remark in OPEN:
        return f"**{judged.remark}**"
    return f"**{judged.verdict}**" + (f" ({judged.remark})" if judged.remark else "")


def _not_run(of: Reproduction, rows: Iterable[Row]) -> Iterator[str]:
    """Why claims were not judged, each reason once."""
    reasons: dict[str, None] = {}
    for row in rows:
        data_set = of.file.data_sets[row.data_set]
        for column, judged in row.columns.items():
            if judged.verdict is Verdict.NOT_RUN:
                reasons[f"{data_set.title}, {COLUMNS[column]}: {judged.why}"] = None
    if reasons:
        yield "\nNot run. " + " ".join(f"{reason}." for reason in reasons)
