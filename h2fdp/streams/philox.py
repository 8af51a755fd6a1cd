"""Philox4x64-10, compiled: NumPy's numbers, to the bit.

NumPy computes one block of Philox after the other, through a pointer for each number. Here many blocks are computed at
once, so that the processor works on several, and numbers are taken from memory.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from h2fdp.streams.compiled_once import CompiledOnce

_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10
_UNIT = 1.0 / 9007199254740992.0  # 2^-53


def _high(_typing: Any, one: Any, other: Any) -> Any:
    """The upper 64 of the 128 bits of a product."""

    def written(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(one, other), written


_upper: Any = intrinsic(_high)
_OPTIONS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner: Callable[[Any], Any] = njit(**_OPTIONS)


@inner
def blocks(key: NDArray[np.uint64], counter: NDArray[np.uint64], first: int, words: NDArray[np.uint64]) -> None:
    """The blocks from the first-th after the counter on, of four numbers each."""
    for block in range(words.shape[0] // 4):
        a, b, c, d = counter[0] + np.uint64(first + block + 1), counter[1], counter[2], counter[3]
        one, other = key[0], key[1]
        for _ in range(_ROUNDS):
            of_a, of_c = _upper(_FACTORS[0], a), _upper(_FACTORS[1], c)
            a, b, c, d = of_c ^ b ^ one, _FACTORS[1] * c, of_a ^ d ^ other, _FACTORS[0] * a
            one, other = one + _WEYL[0], other + _WEYL[1]
        words[4 * block], words[4 * block + 1], words[4 * block + 2], words[4 * block + 3] = a, b, c, d


def _uniforms(
    keys: NDArray[np.uint64],
    owners: NDArray[np.int64],
    skipped: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Fill out[slot, row] with numbers in [0, 1) from the stream of keys[slot, owners[row]], after as many blocks as
    skipped[row] says; rows are whole blocks."""
    words = np.empty(out.shape[2], np.uint64)
    counter = np.zeros(4, np.uint64)
    for slot in range(out.shape[0]):
        for row in range(out.shape[1]):
            blocks(keys[slot, owners[row]], counter, skipped[row], words)
            for column in range(out.shape[2]):
                out[slot, row, column] = np.float64(words[column] >> np.uint64(11)) * _UNIT


uniforms = CompiledOnce(_uniforms)
