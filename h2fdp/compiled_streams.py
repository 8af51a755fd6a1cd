"""Rows of random numbers by machine code: NumPy's, to the bit, in a third of the time and without the interpreter.

Philox (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") with four words of 64 bits
and ten rounds; normals by the ziggurat (Marsaglia and Tsang 2000, "The ziggurat method for generating random
variables") of 256 layers, as NumPy has it: a try takes 32 bits, the lower half of a word first. Needs numba.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Words = NDArray[np.uint64]
_EDGE = 3.6541528853610088  # r, where the tail begins


def _layers() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint32]]:
    """The layers of equal area v under f(x) = exp(-x^2 / 2): f at their edges; by what 23 bits and a sign become x;
    and below which bits x lies under the curve for sure."""

    def f(x: float) -> float:
        return math.exp(-0.5 * x * x)

    area = _EDGE * f(_EDGE) + math.sqrt(math.pi / 2) * math.erfc(_EDGE / math.sqrt(2))
    edges = [area / f(_EDGE), *[0.0] * 254, _EDGE]  # the lowest layer has the tail, too
    for i in range(254, 0, -1):
        edges[i] = math.sqrt(-2 * math.log(area / edges[i + 1] + f(edges[i + 1])))
    heights = np.array([1.0, *map(f, edges[1:])], np.float32)
    widths = np.array([edge / 2**23 for edge in edges], np.float32)
    inner = [_EDGE / edges[0], 0.0, *(edges[i - 1] / edges[i] for i in range(2, 256))]
    return heights, np.concatenate([widths, -widths]), np.rint(np.array(inner) * 2**23).astype(np.uint32)


_HEIGHTS, _WIDTHS, _SURE = _layers()
_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_BUMPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ONE = np.uint64(1)
_STEPS = 32  # of the counter at once: their words stay in the first cache
_TRIES = 8 * _STEPS
_UNIT32, _UNIT64 = np.float32(2.0**-24), 2.0**-53
_FLAT, _BEGIN = np.float32(-0.27366123732975828), np.float32(_EDGE)  # -1 / r, r


def compiled(function: Any) -> Any:
    """Compile a function that runs without the interpreter's lock; machine code is kept on disk, where it can be."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


def _high(_typing: Any, a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a product, for which numba has no type."""

    def written(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        double = ir.IntType(128)
        whole = builder.mul(*(builder.zext(each, double) for each in args))
        return builder.trunc(builder.lshr(whole, ir.Constant(double, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), written


_upper: Any = intrinsic(_high)


def _fill(step: Any, key: Any, words: Any, first: int) -> None:
    """Four words of the stream of a key (2,), those of this step of its counter."""
    a, b, c, d = np.uint64(step) + _ONE, np.uint64(0), np.uint64(0), np.uint64(0)
    left, right = key[0], key[1]
    for _ in range(10):
        upper, lower = _upper(_FACTORS[0], a), _FACTORS[0] * a
        a, b, c, d = _upper(_FACTORS[1], c) ^ b ^ left, _FACTORS[1] * c, upper ^ d ^ right, lower
        left, right = left + _BUMPS[0], right + _BUMPS[1]
    words[first], words[first + 1], words[first + 2], words[first + 3] = a, b, c, d


_four: Any = numba.njit(inline="always")(_fill)


@compiled
def uniforms(keys: Words, owners: NDArray[np.int64], steps: NDArray[np.int64], drawn: NDArray[np.float64]) -> None:
    """`streams.uniform_rows` into `drawn`; keys (slots, owners, 2)."""
    words = np.empty(4, np.uint64)
    for slot in range(drawn.shape[0]):
        for row in range(drawn.shape[1]):
            for first in range(0, drawn.shape[2], 4):
                _four(steps[row] + first // 4, keys[slot, owners[row]], words, 0)
                for each in range(4):
                    drawn[slot, row, first + each] = np.float64(words[each] >> np.uint64(11)) * _UNIT64


@compiled
def normals(keys: Words, drawn: NDArray[np.float32]) -> None:
    """`streams.standard_normal_rows` into `drawn` (s, size); keys (s, 2).

    Tries are made in advance, most of which are drawn as they are; those that are not stand in a list. What decides
    about one of these takes the bits of the tries that follow it.
    """
    words = np.empty(4 * _STEPS, np.uint64)
    bits = words.view(np.uint32)
    tries, unsure = np.empty(_TRIES, np.float32), np.empty(_TRIES + 1, np.int64)
    for number in range(drawn.shape[0]):
        key, row = keys[number], drawn[number]
        step, at, next_unsure = 0, _TRIES, 0
        done, state = 0, 0  # 0: to draw; 1: between the layer and the curve; 2, 3: in the tail
        taken, x = np.uint32(0), np.float32(0)
        while done < row.shape[0]:
            if at == _TRIES:
                for each in range(_STEPS):
                    _four(step + each, key, words, 4 * each)
                for each in range(_TRIES):
                    tries[each] = (
                        np.float32(np.int32(bits[each] >> np.uint32(9))) * _WIDTHS[bits[each] & np.uint32(511)]
                    )
                count = 0
                for each in range(_TRIES):
                    unsure[count] = each
                    count += bits[each] >> np.uint32(9) >= _SURE[bits[each] & np.uint32(255)]
                unsure[count] = _TRIES
                step, at, next_unsure = step + _STEPS, 0, 0
            if state == 0:
                while unsure[next_unsure] < at:
                    next_unsure += 1
                length = min(unsure[next_unsure] - at, row.shape[0] - done)
                for each in range(length):
                    row[done + each] = tries[at + each]
                done, at = done + length, at + length
                if done < row.shape[0] and at < _TRIES:
                    taken, x, state = bits[at], tries[at], 1 if bits[at] & np.uint32(255) else 2
                    at += 1
                continue
            uniform = np.float32(bits[at] >> np.uint32(8)) * _UNIT32
            at += 1
            if state == 1:
                layer, state = taken & np.uint32(255), 0
                height = (_HEIGHTS[layer - 1] - _HEIGHTS[layer]) * uniform + _HEIGHTS[layer]
                if np.float64(height) < math.exp(-0.5 * np.float64(x) * np.float64(x)):
                    row[done] = x
                    done += 1
            elif state == 2:
                x, state = _FLAT * math.log1p(-uniform), 3
            else:
                depth, state = -math.log1p(-uniform), 2
                if depth + depth > x * x:
                    row[done] = -(_BEGIN + x) if taken >> np.uint32(17) & np.uint32(1) else _BEGIN + x
                    done, state = done + 1, 0


def halves(keys: Sequence[int]) -> Words:
    """(s, 2) the lower and the upper 64 bits of each key."""
    words = np.frombuffer(b"".join(key.to_bytes(16, "little") for key in keys), np.uint64)
    return words.reshape(-1, 2).copy()  # for an array that cannot be written numba would compile everything once more


_PROVED = 16, 1 << 14  # rows and numbers in each: 3,000 tries between layer and curve, 70 in the tail


def proved() -> bool:
    """Whether this machine's kernels draw NumPy's numbers, to the bit.

    Compilers for other processors may fuse products and sums, which moves one draw in a hundred million.
    """
    drawn, uniform, owners = np.empty(_PROVED, np.float32), np.empty((1, 16, 8)), np.arange(_PROVED[0])
    keys = halves([key << 60 for key in range(_PROVED[0])])
    normals(keys, drawn)
    uniforms(keys[None], owners, owners, uniform)
    for number in range(_PROVED[0]):
        theirs = np.random.Generator(np.random.Philox(key=number << 60)).standard_normal(_PROVED[1], np.float32)
        moved = np.random.Generator(np.random.Philox(key=number << 60).advance(number)).random(8)
        if not (np.array_equal(theirs, drawn[number]) and np.array_equal(moved, uniform[0, number])):
            return False
    return platform.machine().lower() in ("x86_64", "amd64")
