"""The results of a study, or of a table: the rows of its runs, found by point and seed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from h2fdp.errors import UserError
from h2fdp.records import read_summary
from h2fdp.reproduction.points import Point, is_at

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


def from_table(path: Path, data_set: str, keys: Sequence[str], looks: int = 1) -> Results:
    """The runs of a CSV on one data set.

    Its columns are `data_set`, `seed`, `accuracy` (0 to 1, at the end of a run), the keys that points name, and any
    others, which nothing is read of; lines that begin with # say what made it.

    Raises:
        UserError: there is no such file, it lacks a column, or a line has not what it should; two runs at one point
            under one seed.
    """
    import pandas as pd

    values: dict[str, dict[str, Any]] = {}
    rows = []
    for line, row in _lines_of(path, (*_OF_A_TABLE, *keys)):
        where = f"{path}:{line}"
        accuracy, seed = _number(row["accuracy"], where, "accuracy"), _number(row[SEED], where, SEED)
        if not 0 <= accuracy <= 1:
            raise UserError(f"expected a number from 0 to 1, found {accuracy:g}", where, "accuracy")
        point = {SEED: int(seed), **{key: yaml.safe_load(row[key]) for key in keys}}
        if row["data_set"] == data_set:
            if point in values.values():
                raise UserError("another line has this point and seed", where)
            values[f"line-{line}"] = point
            rows.append({"run": f"line-{line}", "interval": 1, "accuracy": accuracy})
    return Results(values, pd.DataFrame(rows, columns=["run", "interval", "accuracy"]), looks)


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
        return float(text)
    except ValueError:
        raise UserError(f"expected a number, found {text}", where, key) from None


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
