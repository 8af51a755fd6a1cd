"""Each claim against the results of its figure, in each column: a finding and a verdict, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.reproduction.claims import Claim
from experiments.reproduction.figures_file import COLUMNS, Column
from experiments.reproduction.measures import MEASURES, reachable
from experiments.reproduction.plan import FigurePart
from experiments.reproduction.points import Point, points_of
from experiments.reproduction.quantities import Finding, find
from experiments.reproduction.results import NO_RUNS, Results
from experiments.reproduction.verdict import Verdict, remark, verdict


class NoColumn(str):
    """Why a figure has no such column."""


Found = Mapping[FigurePart, Results | str]
LEAST_TARGET = 2 / 3  # of the claim's: below it runs are compared at what they reach by doing little


@dataclass(frozen=True)
class JudgedClaim:
    """A claim in one column.

    Attributes:
        finding: None where it is not run; `why` gives the reason.
        target: the accuracy in percent that stood for the claim's target; None for measures without one.
        remark: what the verdict leaves out, see `verdict.remark`.
        absent: the figure has no such column.
    """

    verdict: Verdict
    finding: Finding | None = None
    target: float | None = None
    why: str = ""
    remark: str = ""
    absent: bool = False


@dataclass(frozen=True)
class Row:
    """A claim on a data set, with what became of it in each column."""

    claim: Claim
    data_set: str
    columns: dict[Column, JudgedClaim]


def evaluate(claims: list[Claim], found: Found) -> list[Row]:
    """Every claim on every data set that it speaks of."""
    return [
        Row(claim, data_set, {column: _judged(claim, data_set, found, column) for column in COLUMNS})
        for claim in claims
        for data_set in claim.paper
    ]


def has_runs(rows: Iterable[Row], data_set: str) -> bool:
    """Whether any claim about a data set was judged."""
    return any(
        judged.verdict is not Verdict.NOT_RUN
        for row in rows
        if row.data_set == data_set
        for judged in row.columns.values()
    )


def _judged(claim: Claim, data_set: str, found: Found, column: Column) -> JudgedClaim:
    results = found.get(FigurePart(claim.figure, data_set, column), NO_RUNS)
    if isinstance(results, str):
        return JudgedClaim(Verdict.NOT_RUN, why=results, absent=isinstance(results, NoColumn))
    return judge(claim, data_set, results)


def judge(claim: Claim, data_set: str, results: Results) -> JudgedClaim:
    """One claim against the results of one study."""
    ladders = [points_of(ladder) for ladder in claim.points]
    seeds = results.seeds_at(point for ladder in ladders for point in ladder)
    if not seeds:
        return JudgedClaim(Verdict.NOT_RUN, why="no seed has finished runs at all of its points")
    target = target_of(claim.target, results, [point for ladder in ladders for point in ladder], seeds)
    if target is not None and claim.target is not None and target < LEAST_TARGET * claim.target:
        why = f"the highest accuracy that all its runs reach is {target:.1f} %, too low to compare"
        return JudgedClaim(Verdict.NOT_RUN, target=target, why=why)
    numbers = [_numbers(claim.measure, ladder, seeds, results, target) for ladder in ladders]
    if any(np.isnan(each).any() for each in numbers):
        return JudgedClaim(Verdict.NOT_RUN, why=f"{claim.measure} is not known of all runs")
    return concluded(claim, data_set, find(claim.how, numbers, results.looks), target)


def concluded(claim: Claim, data_set: str, finding: Finding, target: float | None) -> JudgedClaim:
    """What follows from a finding by the claim as it stands; `target` is the accuracy that stood for the claim's."""
    found = (claim.relation, claim.paper[data_set] or 0, claim.tolerance, finding.size, finding.direction)
    judged = verdict(*found)
    if judged is Verdict.HOLDS and target is not None and target != claim.target:
        judged = Verdict.IN_DIRECTION
    why = "one seed, so no interval" if judged is Verdict.NOT_RUN else ""
    return JudgedClaim(judged, finding, target, why, remark(judged, *found))


def target_of(
    wanted: float | None, results: Results, points: Sequence[Point], seeds: Sequence[int] | None = None
) -> float | None:
    """The accuracy in percent that every run at some points reaches, at most the wanted one; all seeds by default."""
    if wanted is None:
        return None
    runs = {run for point in points for seed, run in results.runs_at(point).items() if seeds is None or seed in seeds}
    table = results.table[results.table["run"].isin(runs)]
    return reachable((rows.sort_values("interval") for _, rows in table.groupby("run")), wanted)


def numbers_at(
    measure: str, ladder: list[dict[str, object]], results: Results, target: float | None = None
) -> NDArray[np.float64]:
    """A measure of the runs at the points of a ladder, under the seeds that all have: shape (seeds, points)."""
    return _numbers(measure, ladder, results.seeds_at(ladder), results, target)


def _numbers(
    measure: str, ladder: list[dict[str, object]], seeds: list[int], results: Results, target: float | None
) -> NDArray[np.float64]:
    of, rows = MEASURES[measure].of, results.table.sort_values("interval").groupby("run")
    columns = []
    for point in ladder:
        runs = results.runs_at(point)
        columns.append([of(rows.get_group(runs[seed]), target or 0.0) for seed in seeds])
    return np.array(columns, dtype=np.float64).T
