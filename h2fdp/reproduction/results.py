"""The results of a study, or of a table: the rows of its runs, found by point and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2fdp.errors import UserError
from h2fdp.reproduction.points import Point, is_at

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed"
_OF_A_TABLE = ("data_set", SEED, "accuracy")


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


def from_table(path: Path, data_set: str) -> Results:
    """The runs of a CSV on one data set.

    Its columns are `data_set`, `seed`, `accuracy` (0 to 1, at the end of a run) and the keys that points name; lines
    that begin with # say what made it.

    Raises:
        UserError: there is no such file, or it lacks a column.
    """
    import pandas as pd

    if not path.is_file():
        raise UserError("no such table", str(path))
    rows = pd.read_csv(path, comment="#", dtype={"data_set": str})
    missing = [name for name in _OF_A_TABLE if name not in rows]
    if missing:
        raise UserError(f"expected a column {missing[0]}, found {', '.join(rows.columns)}", f"{path}:1")
    rows = rows[rows["data_set"] == data_set].assign(interval=1)
    rows["run"] = [f"row-{number}" for number in rows.index]
    keys = [name for name in rows if name not in ("run", "interval", "data_set", "accuracy")]
    columns = (rows[key] for key in ("run", *keys))
    values: dict[str, dict[str, Any]] = {
        run: dict(zip(map(str, keys), each, strict=True)) for run, *each in zip(*columns, strict=True)
    }
    return Results(values, rows)


def makers_of(path: Path) -> list[str]:
    """What the comments of a table say."""
    return [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]


def combinations_at(values: Iterable[Mapping[str, Any]], point: Point) -> int:
    """How many combinations of a grid a point stands for, seeds apart."""
    combinations = []
    for run in values:
        combination = {key: value for key, value in run.items() if key != SEED}
        if is_at(run, point) and combination not in combinations:
            combinations.append(combination)
    return len(combinations)
