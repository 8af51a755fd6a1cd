"""A sweep's directory: its study, the state of its runs, their directories, and the tables of them all."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from h2fdp.errors import UserError
from h2fdp.records import METRICS_SCHEMA, RunDirectory, in_use, read_summary
from h2fdp.records.directory import Inside
from h2fdp.records.summary import read_checked_json, write_checked_json
from h2fdp.records.tables import read_table, write_table
from h2fdp.reports.study_numbers import means_with_intervals
from h2fdp.run.result import FINISHED
from h2fdp.sweeps.grid import word

SCHEMA_VERSION = 2  # 1 had no checksum
WAITING = "waiting"
DAMAGED = "damaged"


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of one sweep's directory."""

    path: Path
    study = Inside("study.yaml")  # its settings written in
    state = Inside("sweep.json")  # the points of the grid, what their runs were made of, and how these stand
    table = Inside("sweep.parquet")  # a row for each run and interval
    summary = Inside("summary.parquet")  # means over seeds, for each combination of other values and each interval

    def run(self, name: str) -> Path:
        """The run directory of a point."""
        return self.path / "runs" / name

    def failure(self, name: str) -> Path:
        """What a point's run failed with at its last try."""
        return self.path / "failures" / f"{name}.txt"

    def state_of(self, name: str) -> str:
        """How a point's run stands, by its own directory; one that says it is running was killed, one whose summary
        is damaged is `damaged`."""
        try:
            state = (read_summary(self.run(name)) or {}).get("state", WAITING)
        except UserError:
            return DAMAGED
        return "killed" if state == "running" else str(state)

    def intervals_of(self, name: str) -> int:
        """How many intervals a point's run has recorded, by its summary."""
        if self.state_of(name) == DAMAGED:
            return 0
        return int((read_summary(self.run(name)) or {}).get("intervals", 0))

    def finished(self, names: Iterable[str]) -> list[str]:
        """The points whose runs have nothing left to do."""
        return [name for name in names if self.state_of(name) in FINISHED]

    def is_begun(self, name: str) -> bool:
        """Whether a point's run can be continued, or has a damaged summary, which says nothing about its releases."""
        run = self.run(name)
        has_inputs = (run / "config.yaml").is_file() and (run / "topology.yaml").is_file()
        return has_inputs and self.state_of(name) != WAITING


def remove_run(path: Path) -> None:
    """Remove what is there of a run.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("another run is writing to this directory", str(path))
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class SweepEntry:
    """What `sweep.json` says about a point.

    Attributes:
        values: swept key -> value.
        digest: of the configuration that its run has, if there is one.
        code: of the code that its run is made by.
    """

    values: dict[str, Any]
    digest: str
    code: str
    state: str = WAITING
    error: str = ""


def write_entries(directory: SweepDirectory, name: str, keys: Sequence[str], entries: Mapping[str, SweepEntry]) -> None:
    """Replace `sweep.json`: at the start of a sweep, and at its end.

    Args:
        name: of the study.
        keys: that are swept.
        entries: point -> what is known, those of earlier grids too as long as they have a run.
    """
    points = {point: vars(entry) for point, entry in entries.items()}
    values = {"schema_version": SCHEMA_VERSION, "name": name, "keys": list(keys), "points": points}
    write_checked_json(directory.state, values, indent=1)


def read_entries(directory: SweepDirectory) -> dict[str, SweepEntry]:
    """The points of an earlier start of the sweep; none where the directory is new.

    Raises:
        UserError: the directory holds something else, or the file is damaged.
    """
    where = str(directory.path)
    if directory.path.exists() and not directory.path.is_dir():
        raise UserError("expected a directory for the sweep, found a file", where)
    if not directory.state.exists():
        if directory.path.is_dir() and any(each.name != ".lock" for each in directory.path.iterdir()):
            raise UserError("the directory contains something other than a sweep; choose another --out", where)
        return {}
    try:
        values = read_checked_json(directory.state) or {}
        return {name: SweepEntry(**entry) for name, entry in values["points"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"damaged ({error!r}); expected the file that a sweep wrote, or another --out"
        raise UserError(text, str(directory.state)) from None


RUN, SEED, INTERVAL, COUNT = "run", "seed", "interval", "n"


def write_tables(directory: SweepDirectory, keys: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> None:
    """Write `sweep.parquet` and `summary.parquet` of the finished runs.

    Args:
        keys: that are swept.
        values: finished run -> swept key -> value, in the order of the grid.
    """
    table = _table(directory, keys, values)
    write_table(directory.table, table)
    means = summary_of(table.to_pandas(), keys)
    write_table(directory.summary, pa.Table.from_pandas(means, preserve_index=False))


def _table(directory: SweepDirectory, keys: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    parts = []
    for name in values:
        path = RunDirectory(directory.run(name)).metrics
        try:
            parts.append(read_table(path))
        except UserError as error:
            text = f"{error.problems[0].text}, although its run is done; delete the run's folder and repeat the command"
            raise UserError(text, str(path)) from None
    metrics = pa.concat_tables(parts or [METRICS_SCHEMA.empty_table()], promote_options="default")
    run_of_row = pa.array(np.repeat(np.arange(len(parts)), [part.num_rows for part in parts]))
    columns = {RUN: pa.array(list(values), pa.string())}
    columns |= {key: column_of([point[key] for point in values.values()]) for key in keys}
    repeated = [column.take(run_of_row) for column in columns.values()]
    return pa.table([*repeated, *metrics.columns], names=[*columns, *metrics.column_names])


def column_of(values: Sequence[Any]) -> pa.Array:
    """Swept values as a column: numbers or truth values where all are, else words as YAML has them.

    >>> [str(column_of(each).type) for each in ([1, 2], [1, 0.5], [True, None], ["hfl", "h2fdp"], [1, "auto"])]
    ['int64', 'double', 'bool', 'string', 'string']
    """
    kinds = {type(value) for value in values if value is not None}
    for allowed, kind in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= allowed:
            return pa.array(values, kind)
    words = [value if value is None or isinstance(value, str) else word(value) for value in values]
    return pa.array(words, pa.string())


def summary_of(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Means over seeds, for each combination of the other swept values and each interval.

    Columns: those values, `interval`, `n` (runs that have it) and for each column of the metrics its `_mean` over the
    runs that know it, `_low` and `_high`: Student's 95 % interval, null with fewer than two runs.
    """
    others = [key for key in keys if key != SEED]
    metrics = [name for name in table.columns if name not in (RUN, INTERVAL, *keys)]
    columns = [*others, INTERVAL, COUNT, *(f"{name}_{what}" for name in metrics for what in ("mean", "low", "high"))]
    if table.empty:
        return pd.DataFrame({name: pd.Series(dtype="float64") for name in columns})
    groups = [group for _, group in table.groupby(others, sort=False, dropna=False)] if others else [table]
    parts = [_summary_of_group(group, others, metrics) for group in groups]
    return pd.concat(parts, ignore_index=True)[columns]


def _summary_of_group(group: pd.DataFrame, others: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    runs, run_of = np.unique(group[RUN].to_numpy(dtype=str), return_inverse=True)
    intervals, interval_of = np.unique(group[INTERVAL].to_numpy(), return_inverse=True)
    values = np.full((len(runs), len(intervals), len(metrics)), np.nan)
    values[run_of, interval_of] = group[list(metrics)].to_numpy(dtype=np.float64, na_value=np.nan)
    means = means_with_intervals(values.reshape(len(runs), -1))
    found: dict[str, Any] = {key: [group[key].iloc[0]] * len(intervals) for key in others}
    found |= {INTERVAL: intervals, COUNT: np.bincount(interval_of)}
    for what in ("mean", "low", "high"):
        columns = getattr(means, what).reshape(len(intervals), len(metrics))
        found |= {f"{name}_{what}": columns[:, place] for place, name in enumerate(metrics)}
    return pd.DataFrame(found)


def last_intervals(summary: pd.DataFrame) -> pd.DataFrame:
    """The last interval of each combination of a summary."""
    others = list(summary.columns[: summary.columns.get_loc(INTERVAL)])
    if summary.empty or not others:
        return summary.tail(1)
    return summary.groupby(others, sort=False, dropna=False).tail(1)
