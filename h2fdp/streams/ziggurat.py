"""Philox4x64-10 and the ziggurat method for 32-bit normals, compiled: NumPy's numbers, to the bit.

NumPy computes one block of Philox after the other, through a pointer for each number. Here many blocks are computed at
once, so that the processor works on several, and numbers are taken from memory.

Sources: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011); Marsaglia and Tsang, The
ziggurat method for generating random variables (2000); `random_standard_normal_f` of NumPy.
"""

from __future__ import annotations

import math
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
_HALVES = 8  # 32-bit numbers of a block
_BLOCKS = 512  # at once: 16 kB, which stay in the first cache
_LAST = 3.6541528853610088  # where the tail begins
_TAIL, _TAIL_RATE = np.float32(_LAST), np.float32(0.27366123732975828)  # and its reciprocal


def layers() -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
    """The 256 layers of equal area: below which of 2^23 parts a point is inside at once; the width of a part; the
    density at the right end."""

    def density(x: float) -> float:
        return math.exp(-0.5 * x * x)

    area = _LAST * density(_LAST) + math.sqrt(math.pi / 2) * math.erfc(_LAST / math.sqrt(2))
    ends = [_LAST]
    for _ in range(254):
        ends.append(math.sqrt(-2 * math.log(area / ends[-1] + density(ends[-1]))))
    right = np.array([area / density(_LAST), *reversed(ends)])  # the lowest layer is a box with the tail's area beside
    left = np.array([_LAST, 0.0, *right[1:-1]])
    parts = 2.0**23
    densities = np.exp(-0.5 * right**2)
    densities[0] = 1.0
    inside = np.rint(left / right * parts).astype(np.uint32)
    return inside, (right / parts).astype(np.float32), densities.astype(np.float32)


_INSIDE, _WIDTHS, _DENSITIES = layers()


def _high(_typing: Any, one: Any, other: Any) -> Any:
    """The upper 64 of the 128 bits of a product."""

    def written(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(one, other), written


_upper: Any = intrinsic(_high)
_OPTIONS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner: Callable[[Any], Any] = njit(**_OPTIONS)


@_inner
def _blocks(key: NDArray[np.uint64], counter: NDArray[np.uint64], first: int, words: NDArray[np.uint64]) -> None:
    """The blocks from the first-th after the counter on, of four numbers each."""
    for block in range(words.shape[0] // 4):
        a, b, c, d = counter[0] + np.uint64(first + block + 1), counter[1], counter[2], counter[3]
        one, other = key[0], key[1]
        for _ in range(_ROUNDS):
            of_a, of_c = _upper(_FACTORS[0], a), _upper(_FACTORS[1], c)
            a, b, c, d = of_c ^ b ^ one, _FACTORS[1] * c, of_a ^ d ^ other, _FACTORS[0] * a
            one, other = one + _WEYL[0], other + _WEYL[1]
        words[4 * block], words[4 * block + 1], words[4 * block + 2], words[4 * block + 3] = a, b, c, d


@_inner
def _unit(half: np.uint32) -> np.float32:
    """A number in [0, 1) from 32 bits."""
    return np.float32(half >> np.uint32(8)) * np.float32(1.0 / 16777216.0)


@_inner
def _vector(
    key: NDArray[np.uint64], counter: NDArray[np.uint64], words: NDArray[np.uint64], out: NDArray[np.float32]
) -> int:
    """Fill `out` from a stream at the beginning of a block; how many 32-bit numbers that took."""
    halves = words.view(np.uint32)
    begin, at, end = 0, 0, 0  # the first block in memory; the next number in memory; the end of it
    done = 0
    while done < out.shape[0]:
        if at + 3 > end:  # a number takes one, or two where it is no tail
            begin, at, end = begin + at // _HALVES, at % _HALVES, halves.shape[0]
            _blocks(key, counter, begin, words)
        bits = halves[at]
        at += 1
        layer, part = bits & np.uint32(255), bits >> np.uint32(9)
        x = np.float32(part) * _WIDTHS[layer]
        if bits & np.uint32(256):
            x = -x
        if part < _INSIDE[layer]:
            out[done] = x
            done += 1
        elif layer != 0:
            drawn = _unit(halves[at])
            at += 1
            if (_DENSITIES[layer - 1] - _DENSITIES[layer]) * drawn + _DENSITIES[layer] < math.exp(-0.5 * x * x):
                out[done] = x
                done += 1
        else:
            while True:
                if at + 2 > end:
                    begin, at, end = begin + at // _HALVES, at % _HALVES, halves.shape[0]
                    _blocks(key, counter, begin, words)
                beyond = -_TAIL_RATE * math.log1p(-_unit(halves[at]))
                other = -math.log1p(-_unit(halves[at + 1]))
                at += 2
                if other + other > beyond * beyond:
                    break
            out[done] = -(_TAIL + beyond) if (part >> np.uint32(8)) & np.uint32(1) else _TAIL + beyond
            done += 1
    return int(begin * _HALVES + at)


def _normals(keys: NDArray[np.uint64], counter: NDArray[np.uint64], out: NDArray[np.float32]) -> int:
    """Fill each row of `out` (s, M) from the stream of its key (s, 2), all from the same counter on.

    Returns:
        How many 32-bit numbers the last row took. The counter's lowest number must not overflow.
    """
    words = np.empty(4 * min(_BLOCKS, out.shape[1] // 8 + 2), np.uint64)
    taken = 0
    for row in range(out.shape[0]):
        taken = _vector(keys[row], counter, words, out[row])
    return taken


normals = CompiledOnce(_normals)
