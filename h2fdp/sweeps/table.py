"""The tables of a sweep: a row for each run and interval, and means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from h2fdp.errors import UserError
from h2fdp.records import METRICS_SCHEMA, RunDirectory
from h2fdp.records.tables import read_table, write_table
from h2fdp.reports.study_numbers import means_with_intervals
from h2fdp.sweeps.directory import SweepDirectory
from h2fdp.sweeps.grid import word

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
    parts = [_metrics_of(directory.run(name)) for name in values]
    metrics = pa.concat_tables(parts or [METRICS_SCHEMA.empty_table()], promote_options="default")
    rows = [part.num_rows for part in parts]
    columns = {RUN: _repeated(pa.array(list(values), pa.string()), rows)}
    for key in keys:
        columns[key] = _repeated(column_of([point[key] for point in values.values()]), rows)
    names = [*columns, *metrics.column_names]
    return pa.table([*columns.values(), *metrics.columns], names=names)


def _metrics_of(run: Path) -> pa.Table:
    """The metrics of a finished run."""
    path = RunDirectory(run).metrics
    try:
        return read_table(path)
    except UserError as error:
        text = f"{error.problems[0].text}, although its run is done; delete the run's folder and repeat the command"
        raise UserError(text, str(path)) from None


def _repeated(column: pa.Array, rows: Sequence[int]) -> pa.Array:
    return column.take(pa.array(np.repeat(np.arange(len(rows)), rows)))


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
    parts = [_summary_of_group(group, others, metrics) for group in _groups(table, others)]
    if not parts:
        names = [*others, INTERVAL, COUNT, *(f"{name}_{what}" for name in metrics for what in ("mean", "low", "high"))]
        return pd.DataFrame({name: pd.Series(dtype="float64") for name in names})
    return pd.concat(parts, ignore_index=True)


def _groups(table: pd.DataFrame, others: Sequence[str]) -> list[pd.DataFrame]:
    """The rows of each combination, in the order of the table."""
    if not others or table.empty:
        return [] if table.empty else [table]
    return [group for _, group in table.groupby(list(others), sort=False, dropna=False)]


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
    ordered = [*others, INTERVAL, COUNT, *(f"{name}_{what}" for name in metrics for what in ("mean", "low", "high"))]
    return pd.DataFrame(found)[ordered]


def last_intervals(summary: pd.DataFrame) -> pd.DataFrame:
    """The last interval of each combination of a summary."""
    others = list(summary.columns[: summary.columns.get_loc(INTERVAL)])
    if summary.empty or not others:
        return summary.tail(1)
    return summary.groupby(others, sort=False, dropna=False).tail(1)
