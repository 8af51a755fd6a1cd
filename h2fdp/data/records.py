"""Records: inputs and labels side by side, and the checks that arrays from outside must pass to become records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.errors import UserError

MOST_CLASSES = 65_536  # a label beyond this is a mistake (an identifier, a pixel count), not a class


@dataclass(frozen=True, eq=False)
class Records:
    """Inputs and labels of the same records.

    Attributes:
        x: inputs, shape (n, *shape), uint8 (images, kept small) or float32.
        y: labels, shape (n,), int64, from 0 to classes - 1.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: NDArray[np.int64]) -> Records:
        """A copy of the records at these places."""
        return Records(self.x[indices], self.y[indices])


def as_records(x: Any, y: Any, what: str, key: str = "data") -> Records:
    """Arrays from outside as records: inputs become uint8 or float32, labels int64.

    Args:
        x: at least two-dimensional, numbers only; 8-bit images stay uint8, all else becomes float32.
        y: one-dimensional, whole numbers of at least 0.
        what: what the arrays are, for messages ("x_train and y_train of points.npz").
        key: the key of the experiment file to blame.

    Raises:
        UserError: other shapes, types, lengths, NaN, infinities, negative or huge labels.

    >>> records = as_records([[0.5, 1.0], [2.0, 3.0]], [0, 1], "two points")
    >>> records.x.dtype.name, records.y.dtype.name, len(records)
    ('float32', 'int64', 2)
    """
    try:
        inputs, labels = np.asarray(x), np.asarray(y)
    except ValueError as error:
        raise UserError(f"{what}: not rectangular arrays: {error}", key=key) from None
    if problem := _problem(inputs, labels):
        raise UserError(f"{what}: {problem}", key=key)
    if inputs.dtype != np.uint8:
        with np.errstate(over="ignore"):
            inputs = np.ascontiguousarray(inputs, dtype=np.float32)
        if not np.isfinite(inputs).all():
            raise UserError(f"{what}: inputs must be finite in 32 bits; found NaN, infinite or huge values", key=key)
    return Records(np.ascontiguousarray(inputs), labels.astype(np.int64))


def _problem(inputs: NDArray[Any], labels: NDArray[Any]) -> str:
    """What is wrong with the form of inputs and labels; empty when nothing is."""
    if inputs.ndim < 2:
        return f"inputs must have a row for each record (two dimensions or more), found shape {inputs.shape}"
    if labels.shape != (len(inputs),):
        return f"expected one label for each of the {len(inputs)} inputs, found labels of shape {labels.shape}"
    if inputs.size == 0:
        return f"no records: inputs of shape {inputs.shape}"
    if inputs.dtype.kind not in "buif":
        return f"inputs must be numbers, found type {inputs.dtype}"
    if labels.dtype.kind not in "ui":
        return f"labels must be whole numbers, found type {labels.dtype}"
    if labels.min() < 0:
        return f"labels must be at least 0, found {labels.min()}"
    if labels.max() >= MOST_CLASSES:
        return f"labels must be below {MOST_CLASSES}, found {labels.max()}"
    return ""
