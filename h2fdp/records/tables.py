"""Tables of a run, as Parquet files that pandas opens without us, with a digest of their values in the file's metadata.

During a run, rows take some hundred bytes each. Columns go from and to NumPy by their memory: pyarrow's own conversions
import pandas, which takes as long as some runs do.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing


def column_of(values: np.ndarray, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of numbers.

    Args:
        valid: where it is false, the column is null.
    """
    if valid is None or valid.all():
        bitmap, nulls = None, 0
    else:
        bitmap, nulls = pa.py_buffer(np.packbits(valid, bitorder="little")), int((~valid).sum())
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))], nulls)


def words_of(words: Sequence[str]) -> pa.Array:
    """A column of texts, less than 2 GB of them."""
    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def known_in(column: pa.Array) -> NDArray[np.bool_]:
    """(n,) where a column is not null.

    >>> known_in(column_of(np.array([1.0, 2.0]), np.array([True, False]))).tolist()
    [True, False]
    >>> known_in(pa.nulls(2)).tolist()
    [False, False]
    """
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    if pa.types.is_null(column.type):  # which has no bitmap
        return np.zeros(len(column), dtype=bool)
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(bool)


def numbers_in(column: pa.Array) -> np.ndarray:
    """(n,) of a column of numbers, 0 where it is null.

    >>> numbers_in(column_of(np.array([1.0, 2.0]), np.array([True, False]))).tolist()
    [1.0, 0.0]
    """
    kind = np.dtype(column.type.to_pandas_dtype())
    if len(column) == 0:
        return np.empty(0, kind)
    values = np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]
    return np.where(known_in(column), values, kind.type(0))


_DIGEST = b"h2fdp.digest"


def write_table(path: Path, table: pa.Table) -> None:
    """Replace a table as a whole."""
    metadata = table.schema.metadata or {}
    with replacing(path) as file:
        pq.write_table(table.replace_schema_metadata({**metadata, _DIGEST: _digest(table)}), file)


def read_table(path: Path) -> pa.Table:
    """A table that `write_table` wrote; one of others is taken as it is.

    Raises:
        UserError: there is no such file, it is damaged, or its values are not those that were written.
    """
    try:
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
        table.validate(full=True)
        stated = (table.schema.metadata or {}).get(_DIGEST)
        if stated is not None and stated != _digest(table):
            raise UserError("damaged: its values do not match the checksum in the file", str(path))
    except OSError as error:
        raise UserError(f"cannot be read as a table: {_first_line(error)}", str(path)) from None
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise UserError(f"damaged: it cannot be read as a table: {_first_line(error)}", str(path)) from None
    return table


def _first_line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0]


def _digest(table: pa.Table) -> bytes:
    """A digest of names, types, nulls and values, whatever their layout in the file."""
    digest = blake2b(digest_size=16)
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.combine_chunks()
        digest.update(json.dumps([name, str(values.type), len(values)]).encode())
        digest.update((~known_in(values)).tobytes())
        if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
            digest.update(numbers_in(values).tobytes())
        else:
            digest.update(json.dumps(values.to_pylist(), default=str).encode())
    return digest.hexdigest().encode()


_ACCOUNTANT = b"accountant"  # of the columns epsilon_<observer>, in the metadata of a table
METRICS_SCHEMA = pa.schema(
    [("interval", pa.int64()), ("slot", pa.int64())]
    + [(name, pa.float64()) for name in ("accuracy", "loss")]
    + [("local_steps", pa.int64()), ("step_size", pa.float64()), ("participants", pa.int64())]
    + [(f"epsilon_{observer}", pa.float64()) for observer in ("claimed", "edge", "peer", "cloud", "public")]
    + [(name, pa.float64()) for name in ("energy_j", "delay_s", "clock_s", "bytes", "wall_s")]
)


def device_schema(numbers: Iterable[str], score: str) -> pa.Schema:
    """The columns of the devices' table: who they are, what they spent, their score and loss, and more numbers."""
    columns = ("energy_j", score, "loss", f"subnet_{score}", "subnet_loss", *numbers)
    words = [(name, pa.string()) for name in ("device", "edge", "trust")]
    return pa.schema([*words, ("records", pa.int64()), *((name, pa.float64()) for name in columns)])


def metrics_schema(
    *prefixes: str,
    observers: Sequence[str] = (),
    others: Sequence[str] = (),
    accountant: str | None = None,
    scores: Sequence[str] = ("accuracy",),
) -> pa.Schema:
    """The columns of the metrics; for each prefix, as `validation_`, the scores and a loss more.

    Args:
        observers: all of the run's; those that not every run has get columns of their own, too.
        others: further columns of numbers that this run has.
        accountant: by which the epsilons of observers are; null where there are none.
        scores: measures other than the loss; `accuracy` has a column in any case.
    """
    more = [pa.field(name, pa.float64()) for name in scores if name not in METRICS_SCHEMA.names]
    more += [pa.field(f"{prefix}{name}", pa.float64()) for prefix in prefixes for name in (*scores, "loss")]
    columns = [*(f"epsilon_{observer}" for observer in observers), *others]
    more += [pa.field(name, pa.float64()) for name in columns if name not in METRICS_SCHEMA.names]
    return pa.schema([*METRICS_SCHEMA, *more], None if accountant is None else {_ACCOUNTANT: accountant.encode()})


def accountant_of_metrics(table: pa.Table) -> str | None:
    """The accountant of the epsilons of observers in a run's metrics; null where there are none, and in runs of
    earlier versions: there it was `rdp`."""
    name = (table.schema.metadata or {}).get(_ACCOUNTANT)
    return None if name is None else name.decode()


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Replace a table as a whole by its columns."""
    arrays = [
        words_of(columns[field.name])
        if field.type == pa.string()
        else column_of(np.array(columns[field.name], field.type.to_pandas_dtype()))
        for field in schema
    ]
    write_table(path, pa.Table.from_arrays(arrays, schema=schema))


class MetricsRows:
    """Rows of numbers; a column that a row does not name, or names with None, is null in it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._values = {field.name: array("q" if field.type == pa.int64() else "d") for field in schema}
        self._known = {name: bytearray() for name in self._values}

    def append(self, row: Mapping[str, float | None]) -> None:
        """One more row."""
        unknown = set(row) - set(self._values)
        assert not unknown, f"no column for {sorted(unknown)}"
        for name, column in self._values.items():
            value = row.get(name)
            column.append(0 if value is None else value)  # type: ignore[arg-type]
            self._known[name].append(value is not None)

    def complete(self, row: Mapping[str, float | None]) -> None:
        """Fill in what the last row does not have yet."""
        for name, value in row.items():
            if value is not None and not self._known[name][-1]:
                self._values[name][-1] = value  # type: ignore[call-overload]
                self._known[name][-1] = True

    def __len__(self) -> int:
        return len(next(iter(self._known.values())))

    def __getitem__(self, place: int) -> dict[str, Any]:
        """A row, without its nulls; negative places count from the end."""
        return {name: column[place] for name, column in self._values.items() if self._known[name][place]}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def column(self, name: str) -> list[float]:
        """The values of a column, in order, without its nulls."""
        return [value for value, valid in zip(self._values[name], self._known[name], strict=True) if valid]

    def write(self, path: Path) -> None:
        """Replace a table as a whole by these rows."""
        columns = [
            column_of(np.array(self._values[field.name]), _known(self._known[field.name])) for field in self._schema
        ]
        write_table(path, pa.Table.from_arrays(columns, schema=self._schema))

    def state(self) -> dict[str, Any]:
        """All rows as arrays, for a checkpoint."""
        return {name: [np.array(column), _known(self._known[name])] for name, column in self._values.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """The rows of a `state`."""
        for name, column in self._values.items():
            values, valid = (np.asarray(each) for each in state[name])
            column[:] = array(column.typecode, values.tobytes())
            self._known[name][:] = valid.astype(np.uint8).tobytes()


def _known(flags: bytearray) -> np.ndarray:
    return np.frombuffer(flags, dtype=np.uint8).astype(bool)
