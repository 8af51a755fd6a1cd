"""The generated part of the page of a reproduction: every claim, what was found, the verdict, and what made it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from h2fdp.records.atomic import write_text
from h2fdp.reproduction.claims import Claim
from h2fdp.reproduction.evaluation import JudgedClaim, Row
from h2fdp.reproduction.figures_file import COLUMNS, Column
from h2fdp.reproduction.measures import MEASURES
from h2fdp.reproduction.plan import Reproduction
from h2fdp.reproduction.quantities import Estimate
from h2fdp.reproduction.verdict import UNDECIDED, Verdict

BEGIN, END = "<!-- results begin: h2fdp reproduce --check writes them -->", "<!-- results end -->"
_SIGNS = {"at least": "≥", "at most": "≤"}


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


def write_page(page: Path, of: Reproduction, rows: Sequence[Row], figures: Mapping[str, FigureResults]) -> None:
    """Replace what is between the markers of a page; a missing page is created."""
    text = page.read_text() if page.is_file() else f"# Reproduction\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    body = "\n".join(_body(of, rows, figures))
    write_text(page, f"{head}{BEGIN}\n{body}\n{END}{tail}")


def _body(of: Reproduction, rows: Sequence[Row], figures: Mapping[str, FigureResults]) -> Iterator[str]:
    yield from _totals(of, rows)
    for name, figure in of.file.figures.items():
        own = [row for row in rows if row.claim.figure == name]
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
            yield f"| {UNDECIDED} | " + " | ".join(map(_undecided, columns.values())) + " |"
        yield f"| {verdict} | " + " | ".join(_count(verdict, column) for column in columns.values()) + " |"


def _count(verdict: Verdict, column: Iterable[JudgedClaim]) -> str:
    """Of those that are decided, with how many of them have which remark."""
    found = [judged for judged in column if judged.verdict is verdict and judged.remark != UNDECIDED]
    remarks = Counter(judged.remark for judged in found if judged.remark)
    return ", ".join([str(len(found)), *(f"{count} {remark}" for remark, count in remarks.items())])


def _undecided(column: Iterable[JudgedClaim]) -> str:
    return str(sum(judged.remark == UNDECIDED for judged in column))


def _table(of: Reproduction, rows: Iterable[Row]) -> Iterator[str]:
    yield "| claim | source | data | paper | " + " | ".join(f"{words} | verdict" for words in COLUMNS.values()) + " |"
    yield "|---" * (4 + 2 * len(COLUMNS)) + "|"
    for row in rows:
        cells = [row.claim.words, row.claim.source, of.file.data_sets[row.data_set].title, paper_words(row)]
        for column in COLUMNS:
            judged = row.columns[column]
            cells += [found_words(row.claim, judged), "–" if judged.absent else verdict_words(judged)]
        yield "| " + " | ".join(cells) + " |"


def _not_run(of: Reproduction, rows: Iterable[Row]) -> Iterator[str]:
    """Why claims were not judged, each reason once."""
    reasons: dict[str, None] = {}
    for row in rows:
        data_set = of.file.data_sets[row.data_set]
        for column, judged in row.columns.items():
            if judged.verdict is Verdict.NOT_RUN:
                why = data_set.not_run if judged.why == "no runs were made" and data_set.not_run else judged.why
                where = data_set.title if why == data_set.not_run else f"{data_set.title}, {COLUMNS[column]}"
                reasons[f"{where}: {why}"] = None
    if reasons:
        yield "\nNot run. " + " ".join(f"{reason}." for reason in reasons)


def paper_words(row: Row) -> str:
    """What the paper says, as a relation to a number with its unit."""
    number, at_least = row.claim.paper[row.data_set], row.claim.relation == "at least"
    tolerance = f" ({'−' if at_least else '+'} {row.claim.tolerance:g})" if row.claim.tolerance else ""
    if number is None:
        return ("> 0" if row.claim.comparison not in ("least rise", "least fall") else "every step") + tolerance
    return f"{_SIGNS[row.claim.relation]} {number:g} {row.claim.unit}{tolerance}"


def found_words(claim: Claim, judged: JudgedClaim) -> str:
    """What was found, with its interval over n seeds; a dash where nothing was."""
    if judged.finding is None:
        return "–"
    places = 2 if claim.how.unit == "times the gain" else MEASURES[claim.measure].places if not claim.how.unit else 1
    words = f"{estimate_words(judged.finding.size, places)}, n = {judged.finding.seeds}"
    return words if judged.target is None else f"{words}, at {judged.target:.1f} %"


def verdict_words(judged: JudgedClaim) -> str:
    """The verdict, with what it leaves out."""
    if judged.remark == UNDECIDED:  # a verdict and its opposite do not stand in one cell
        return f"**{UNDECIDED}**"
    return f"**{judged.verdict}**" + (f" ({judged.remark})" if judged.remark else "")


def estimate_words(estimate: Estimate, places: int) -> str:
    """A number and its interval; a multiple of no gain is none.

    >>> estimate_words(Estimate(6.04, 5.5, 7.25), 1)
    '6.0 [5.5, 7.2]'
    """
    if math.isinf(estimate.value):
        return "no gain to compare with"
    value = _number(estimate.value, places)
    if math.isnan(estimate.low):
        return value
    return f"{value} [{_number(estimate.low, places)}, {_number(estimate.high, places)}]"


def _number(value: float, places: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{places}f}"
    return f"−{text[1:]}" if text.startswith("-") and float(text) else text.removeprefix("-")
