"""Columns of tables from and to NumPy, by their memory: pyarrow's own conversions import pandas, which takes as long as
some runs do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def column_of(values: np.ndarray, known: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of numbers.

    Args:
        known: where it is false, the column is null.
    """
    if known is None or known.all():
        bitmap, nulls = None, 0
    else:
        bitmap, nulls = pa.py_buffer(np.packbits(known, bitorder="little")), int((~known).sum())
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
