"""The ziggurat method for 32-bit normals, compiled, from Philox's numbers: what NumPy draws, to the bit.

Sources: Marsaglia and Tsang, The ziggurat method for generating random variables (2000); `random_standard_normal_f` of
NumPy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from h2fdp.streams.compiled_once import CompiledOnce
from h2fdp.streams.philox import blocks, inner

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


@inner
def _unit(half: np.uint32) -> np.float32:
    """A number in [0, 1) from 32 bits."""
    return np.float32(half >> np.uint32(8)) * np.float32(1.0 / 16777216.0)


@inner
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
            blocks(key, counter, begin, words)
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
                    blocks(key, counter, begin, words)
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
