"""Arrays as values: checked once, and read-only ever after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2fdp.errors import UserError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class AllowedNumbers:
    """Which numbers an array may hold: what a user calls them, and where they are."""

    words: str
    among: Callable[[Floats], NDArray[np.bool_]]


FINITE = AllowedNumbers("finite numbers", np.isfinite)
ABOVE_ZERO = AllowedNumbers("numbers above 0", lambda values: values > 0)
FINITE_ABOVE_ZERO = AllowedNumbers("finite numbers above 0", lambda values: np.isfinite(values) & (values > 0))


def read_only(values: ArrayLike, numbers: AllowedNumbers, size: int, key: str) -> Floats:
    """A copy of (size,) values that nobody can change.

    Raises:
        UserError: under `key`, another number of values, or others than `numbers`.
    """
    copy: Floats = np.array(values, dtype=np.float64)
    if copy.shape != (size,):
        raise UserError(f"expected {size} values, found {copy.size}", key=key)
    if not numbers.among(copy).all():
        raise UserError(f"expected {numbers.words}", key=key)
    copy.flags.writeable = False
    return copy
