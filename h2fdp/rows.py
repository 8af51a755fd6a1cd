"""Arrays with a row for each of the same things, side by side: some of the rows, or several parts one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class Rows:
    """Base of dataclasses: every array, tensor, list and `Rows` among the fields has a row for each of the same things.

    Such a field is None in all parts that are joined, or in none of them. Any other value holds for all rows.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sizes(Rows):
    ...     unit: str
    ...     names: list[str]
    ...     values: NDArray[np.int64]
    >>> whole = Sizes("records", ["a", "b", "c"], np.array([5, 6, 7]))
    >>> part = whole.part(np.array([2, 0]))
    >>> part.unit, part.names, part.values
    ('records', ['c', 'a'], array([7, 5]))
    >>> Sizes.joined([part, whole.part(slice(1, 2))]).names
    ['c', 'a', 'b']
    """

    def part(self, rows: slice | NDArray[np.int64]) -> Self:
        """These rows: views of the same memory for a slice, copies for numbers of rows."""
        return type(self)(**{each.name: _taken(getattr(self, each.name), rows) for each in fields(self)})  # type: ignore[arg-type]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one part after another."""
        if len(parts) == 1:
            return parts[0]
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]  # of dataclasses
        return cls(**{name: _joined([getattr(part, name) for part in parts]) for name in names})


def _taken(value: Any, rows: slice | NDArray[np.int64]) -> Any:
    if isinstance(value, Rows):
        return value.part(rows)
    if isinstance(value, list):
        return value[rows] if isinstance(rows, slice) else [value[row] for row in rows.tolist()]
    return value[rows] if _has_rows(value) else value


def _has_rows(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0))


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if not isinstance(first, (Rows, list)) and not _has_rows(first):
        assert first is not None or all(value is None for value in values), "of all parts or of none"
        return first
    assert all(value is not None for value in values), "of all parts or of none"
    if isinstance(first, Rows):
        return type(first).joined(values)
    if isinstance(first, list):
        return [each for value in values for each in value]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    import torch  # what else has rows is a tensor

    return torch.cat(values)
