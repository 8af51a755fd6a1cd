"""Tables of a run, as Parquet files that pandas opens without us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from h2fdp.records.atomic import replacing

METRICS_SCHEMA = pa.schema(
    [("interval", pa.int64()), ("slot", pa.int64())]
    + [(name, pa.float64()) for name in ("accuracy", "loss")]
    + [("local_steps", pa.int64()), ("step_size", pa.float64()), ("participants", pa.int64())]
    + [(f"epsilon_{observer}", pa.float64()) for observer in ("claimed", "edge", "peer", "cloud", "public")]
    + [(name, pa.float64()) for name in ("energy_j", "delay_s", "clock_s", "wall_s")]
)
DEVICE_SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("edge", pa.string()),
        ("trusted", pa.bool_()),
        ("records", pa.int64()),
        ("accuracy", pa.float64()),
        ("loss", pa.float64()),
        ("subnet_accuracy", pa.float64()),
        ("subnet_loss", pa.float64()),
    ]
)


def metrics_schema(*prefixes: str, observers: Sequence[str] = ()) -> pa.Schema:
    """The columns of the metrics; for each prefix, as `validation_`, an accuracy and a loss more.

    Args:
        observers: all of the run's; those that not every run has get columns of their own, too.
    """
    more = [pa.field(f"{prefix}{name}", pa.float64()) for prefix in prefixes for name in ("accuracy", "loss")]
    columns = [f"epsilon_{observer}" for observer in observers]
    more += [pa.field(name, pa.float64()) for name in columns if name not in METRICS_SCHEMA.names]
    return pa.schema([*METRICS_SCHEMA, *more])


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Replace a table as a whole by its columns."""
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pydict(dict(columns), schema=schema), file)
