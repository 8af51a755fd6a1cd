"""Tables as Parquet files that pandas opens without us, with a digest of their values in the file's own metadata."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from h2fdp.errors import UserError
from h2fdp.records.arrays import known_in, numbers_in
from h2fdp.records.atomic import replacing

_DIGEST = b"h2fdp.digest"


def write_table(path: Path, table: pa.Table) -> None:
    """Replace a table as a whole."""
    known = table.schema.metadata or {}
    with replacing(path) as file:
        pq.write_table(table.replace_schema_metadata({**known, _DIGEST: _digest(table)}), file)


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
    """Of names, types, nulls and values, however they are laid out in the file."""
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
