"""Normal numbers from a stream, as NumPy draws them; by compiled code, which takes a third of NumPy's time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.streams.keyed import generator_of, words_of

_FEWEST = 512  # numbers that are worth a compiled call
_HALVES = 8  # 32-bit numbers of a step of Philox's counter
_SAFE = 1 << 63
_MOST_FIRST = 64  # a step is eight halves, and few normals take more than one


def standard_normals(generator: np.random.Generator, size: int) -> NDArray[np.float32]:
    """(size,) from N(0, 1): to the bit what `generator.standard_normal(size, dtype=np.float32)` draws.

    Compiled code draws them in processes that have imported numba already: in others that would cost more than it
    saves. Nothing that was drawn is drawn again, but what comes after it may begin a few numbers later than NumPy's.

    >>> one, other = (np.random.Generator(np.random.Philox(key=1)) for _ in range(2))
    >>> bool((standard_normals(one, 1000) == other.standard_normal(1000, dtype=np.float32)).all())
    True
    """
    normals = np.empty(size, np.float32)
    _fill(generator, normals)
    return normals


def _fill(generator: np.random.Generator, normals: NDArray[np.float32]) -> None:
    bits = generator.bit_generator
    if normals.size >= _FEWEST and "numba" in sys.modules and isinstance(bits, np.random.Philox):
        state: Any = bits.state
        inner = state["state"]
        counter = inner["counter"]
        if _at_a_step(state) and counter[0] < _SAFE:
            drawn = _compiled()(inner["key"][None], counter, normals[None])
            bits.advance(-(-drawn // _HALVES))
            return
    generator.standard_normal(dtype=np.float32, out=normals)


def last_standard_normals(generator: np.random.Generator, size: int) -> NDArray[np.float32]:
    """`standard_normals` of a stream that was drawn from before and that nobody draws from afterwards.

    NumPy draws the first few, up to where a step of Philox's counter begins.

    >>> one, other = (np.random.Generator(np.random.Philox(key=1)) for _ in range(2))
    >>> one.random() == other.random()
    True
    >>> bool((last_standard_normals(one, 1000) == other.standard_normal(1000, dtype=np.float32)).all())
    True
    """
    bits = generator.bit_generator
    normals, first = np.empty(size, np.float32), 0
    if size >= _FEWEST and "numba" in sys.modules and isinstance(bits, np.random.Philox):
        while first < _MOST_FIRST and not _at_a_step(bits.state):
            normals[first] = generator.standard_normal(dtype=np.float32)
            first += 1
    _fill(generator, normals[first:])
    return normals


def _at_a_step(state: Any) -> bool:
    """Whether nothing is left of the numbers of Philox's last step."""
    return bool(state["buffer_pos"] == len(state["buffer"]) and not state["has_uint32"])


def standard_normal_rows(keys: Sequence[int], size: int) -> NDArray[np.float32]:
    """(s, size): in each row what `standard_normals` draws first from the stream of this key, all by one compiled call.

    >>> rows = standard_normal_rows([1, 2], 3)
    >>> bool((rows[1] == standard_normals(np.random.Generator(np.random.Philox(key=2)), 3)).all())
    True
    """
    normals = np.empty((len(keys), size), np.float32)
    if normals.size >= _FEWEST and "numba" in sys.modules:
        _compiled()(words_of(keys), np.zeros(4, np.uint64), normals)
    else:
        for row, key in zip(normals, keys, strict=True):
            generator_of(key).standard_normal(dtype=np.float32, out=row)
    return normals


@cache
def _compiled() -> Callable[[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float32]], int]:
    from h2fdp.streams.ziggurat import normals  # compiles, or reads what was compiled

    return normals
