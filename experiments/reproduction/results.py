"""The results of a study, or of a table: the rows of its runs, found by point and seed."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from experiments.reproduction.points import Point, is_at
from h2fdp.errors import UserError
from h2fdp.records.directory import read_summary
from h2fdp.sweeps.grid import word

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed"
NO_RUNS = "no runs were made"
_OF_A_TABLE = ("data_set", SEED, "accuracy")


@dataclass(frozen=True)
class Results:
    """What a study found.

    Attributes:
        values: run -> swept key -> value, of all runs of the grid.
        table: the rows of the runs that are finished, by interval: `run`, `interval`, and what was measured.
        looks: how often its intervals were looked at before the last seed was added, this time counted.
    """

    values: Mapping[str, Mapping[str, Any]]
    table: pd.DataFrame
    looks: int = 1

    def runs_at(self, point: Point) -> dict[int, str]:
        """Seed -> finished run at a point."""
        finished = set(self.table["run"].unique())
        found = {run: values for run, values in self.values.items() if is_at(values, point)}
        return {values.get(SEED, 0): run for run, values in found.items() if run in finished}

    def seeds_at(self, points: Iterable[Point]) -> list[int]:
        """The seeds that are finished at all of these points."""
        found = [set(self.runs_at(point)) for point in points]
        return sorted(set.intersection(*found)) if found else []


@dataclass(frozen=True)
class TableRun:
    """A line of a table.

    Attributes:
        where: file and line.
        point: the seed and the keys' values.
        accuracy: at the end of the run, 0 to 1.
    """

    where: str
    data_set: str
    point: Mapping[str, Any]
    accuracy: float


def table_runs(path: Path, keys: Sequence[str]) -> list[TableRun]:
    """The runs of a CSV.

    Its columns are `data_set`, `seed`, `accuracy` (0 to 1, at the end of a run), the keys that points name, and any
    others, which nothing is read of; lines that begin with # say what made it.

    Raises:
        UserError: there is no such file, it lacks a column, or a line has not what it should; two runs at one point
            under one seed.
    """
    found: dict[tuple[object, ...], TableRun] = {}
    for line, row in _lines_of(path, (*_OF_A_TABLE, *keys)):
        where = f"{path}:{line}"
        accuracy, seed = _number(row["accuracy"], where, "accuracy"), _number(row[SEED], where, SEED)
        if not 0 <= accuracy <= 1:
            raise UserError(f"expected a number from 0 to 1, found {accuracy:g}", where, "accuracy")
        if seed != int(seed):
            raise UserError(f"expected a whole number, found {seed:g}", where, SEED)
        point = {SEED: int(seed), **{key: yaml.safe_load(row[key]) for key in keys}}
        run = row["data_set"], *map(repr, point.values())
        if run in found:
            raise UserError("another line has this point and seed", where)
        found[run] = TableRun(where, row["data_set"], point, accuracy)
    return list(found.values())


def from_table(path: Path, data_set: str, keys: Sequence[str], looks: int = 1) -> Results:
    """The runs of a CSV on one data set.

    Raises:
        UserError: of `table_runs`.
    """
    import pandas as pd

    runs = [run for run in table_runs(path, keys) if run.data_set == data_set]
    rows = [{"run": run.where, "interval": 1, "accuracy": run.accuracy} for run in runs]
    values = {run.where: run.point for run in runs}
    return Results(values, pd.DataFrame(rows, columns=["run", "interval", "accuracy"]), looks)


def require_whole(results: Results, points: Sequence[Point]) -> None:
    """Refuse a table in which a seed has a run at one of some points and none at another, as by a mistyped name.

    Raises:
        UserError: the line that is alone, and what is missing beside it.
    """
    runs = [results.runs_at(point) for point in points]
    for one in runs:
        for point, other in zip(points, runs, strict=True):
            for seed in sorted(one.keys() - other.keys()):
                raise UserError(f"expected a run of seed {seed} at {word(point)} too, found none", one[seed])


def _lines_of(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, column -> text) of each row."""
    if not path.is_file():
        raise UserError("no such table", str(path))
    texts = enumerate(path.read_text().splitlines(), 1)
    lines = [(number, next(csv.reader([text]))) for number, text in texts if text.strip() and not text.startswith("#")]
    if not lines:
        raise UserError("expected a line of column names, found none", str(path))
    first, head = lines[0]
    for column in columns:
        if column not in head:
            raise UserError(f"expected a column {column}, found {', '.join(head)}", f"{path}:{first}")
    for number, cells in lines[1:]:
        if len(cells) != len(head):
            raise UserError(f"expected {len(head)} values, found {len(cells)}", f"{path}:{number}")
        yield number, dict(zip(head, cells, strict=True))


def _number(text: str, where: str, key: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"expected a number, found {text}", where, key)
    return number


def makers_of(path: Path) -> list[str]:
    """What the comments of a table say."""
    return [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]


def largest_accounted(run: Path) -> float | None:
    """The largest accounted epsilon of a run's observers, by the tighter account, in epsilons that it is meant to have.

    None where nothing is accounted. (`pld` looks at the 24 accounts of an observer that are worst by `rdp`.)
    """
    worst = ((read_summary(run) or {}).get("privacy") or {}).get("worst")
    if not worst:
        return None
    meant = float(yaml.safe_load((run / "config.yaml").read_text())["privacy"]["epsilon"])
    return max(min(float(numbers["rdp"]), float(numbers["pld"])) for numbers in worst.values()) / meant


def combinations_at(values: Iterable[Mapping[str, Any]], point: Point) -> int:
    """How many combinations of a grid belong to a point, seeds apart."""
    combinations = []
    for run in values:
        combination = {key: value for key, value in run.items() if key != SEED}
        if is_at(run, point) and combination not in combinations:
            combinations.append(combination)
    return len(combinations)
