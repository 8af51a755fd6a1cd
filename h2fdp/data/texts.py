"""Public maps from words to numbers: what a cell becomes depends on that cell and on its column's name alone.

A list of categories or a vocabulary that is collected from devices' records reveals words, and no account covers that.
So categories that are not stated are hashed (Weinberger et al. 2009, "Feature hashing for large scale multitask
learning").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUCKETS = 2**5  # of a column whose categories are not stated


def hashed(cells: Sequence[Any], gaps: NDArray[np.bool_], column: str) -> NDArray[np.float64]:
    """Cells as one of 32 indicators each, by a hash of the column's name and the cell; a gap has none.

    Words differ by more than spaces around them and upper case, numbers by value.

    Returns:
        shape (n, 32).

    >>> hashed(["north", "North ", "south", None], np.array([False, False, False, True]), "site").argmax(axis=1)
    array([ 8,  8, 24,  0])
    """
    places = [_place(f"{column}\0{_word(cell)}", BUCKETS) for cell in cells]
    indicators = np.eye(BUCKETS)[places]
    indicators[gaps] = 0
    return indicators


def _word(cell: Any) -> str:
    try:
        return repr(float(cell)) if not isinstance(cell, bool | np.bool_) else str(cell).lower()
    except (TypeError, ValueError):
        return str(cell).strip().casefold()


@lru_cache(maxsize=100_000)
def _place(text: str, places: int) -> int:
    """A number below `places`, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % places
