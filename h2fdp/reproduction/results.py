"""The results of a study: the rows of its runs, found by point and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2fdp.reproduction.points import Point, is_at

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed"


@dataclass(frozen=True)
class Results:
    """What a study found.

    Attributes:
        values: run -> swept key -> value, of all runs of the grid.
        table: the rows of the runs that are finished, by interval: `run`, `interval`, and what was measured.
    """

    values: Mapping[str, Mapping[str, Any]]
    table: pd.DataFrame

    def runs_at(self, point: Point) -> dict[int, str]:
        """Seed -> finished run at a point."""
        finished = set(self.table["run"].unique())
        found = {run: values for run, values in self.values.items() if is_at(values, point)}
        return {values.get(SEED, 0): run for run, values in found.items() if run in finished}

    def seeds_at(self, points: Iterable[Point]) -> list[int]:
        """The seeds that are finished at all of these points."""
        found = [set(self.runs_at(point)) for point in points]
        return sorted(set.intersection(*found)) if found else []


def combinations_at(values: Iterable[Mapping[str, Any]], point: Point) -> int:
    """How many combinations of a grid a point stands for, seeds apart."""
    combinations = []
    for run in values:
        combination = {key: value for key, value in run.items() if key != SEED}
        if is_at(run, point) and combination not in combinations:
            combinations.append(combination)
    return len(combinations)
