"""Uniform numbers from many streams by one compiled call, as NumPy draws them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from h2fdp.streams.keyed import generator_of, words_of

PER_STEP = 4  # uniforms for each step of Philox's counter


def uniform_rows(
    keys: Sequence[Sequence[int]], owners: NDArray[np.int64], steps: NDArray[np.int64], length: int
) -> NDArray[np.float64]:
    """(slots, rows, length) in [0, 1): each row to the bit what the stream of keys[slot][owners[row]] draws.

    Compiled code draws them in processes that have imported numba already; NumPy takes twice as long, and holds the
    interpreter's lock between any two streams.

    Args:
        keys: of streams, for each slot as many.
        owners: (rows,) which of them each row is drawn from.
        steps: (rows,) of the counter, that are jumped over before it.
        length: a multiple of `PER_STEP`.

    >>> drawn = uniform_rows([[1, 2]], np.array([0, 1, 1]), np.array([0, 0, 1]), 4)
    >>> bool((drawn[0, 1:].ravel() == np.random.Generator(np.random.Philox(key=2)).random(8)).all())
    True
    """
    assert length % PER_STEP == 0, "rows begin at whole steps"
    drawn = np.empty((len(keys), len(owners), length))
    if "numba" in sys.modules:
        words = words_of([key for slot in keys for key in slot]).reshape(len(keys), -1, 2)
        _compiled()(words, owners, steps, drawn)
        return drawn
    together = np.flatnonzero((np.diff(owners) != 0) | (np.diff(steps) != length // PER_STEP)) + 1
    runs = list(zip([0, *together.tolist()], [*together.tolist(), len(owners)], strict=True))
    for of_slot, rows in zip(keys, drawn, strict=True):
        for first, stop in runs if len(owners) else ():
            generator_of(of_slot[owners[first]], int(steps[first])).random(out=rows[first:stop])
    return drawn


@cache
def _compiled() -> Callable[[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]], None]:
    from h2fdp.streams.philox import uniforms  # compiles, or reads what was compiled

    return uniforms
