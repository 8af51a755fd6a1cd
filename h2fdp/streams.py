"""Keyed randomness: every random draw of a run comes from a stream named by what it is for.

There is no generator state anywhere. A stream is the Philox generator under the 128-bit key
``blake2b(seed, node, purpose, interval, slot)``, so a draw is the same whatever was drawn before it, on any
host, and again after a crash. What protects privacy is drawn under a secret key, too, for a seed can be guessed.
(torch's CPU generator keeps 32 bits of its seed: among 20,000 noise vectors two would be equal with a probability of
5 %, and a repeated noise vector breaks privacy. Hence Philox.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Borrowed(threading.local):
    """One generator of a thread, wound to the start of one stream after the other."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.state: Any = self.bits.state
        self.state["buffer_pos"] = len(self.state["buffer"])  # nothing is left of the stream before


_BORROWED = _Borrowed()
_WORD = (1 << 64) - 1
PER_STEP = 4  # 64-bit numbers, and so uniforms, for each step of Philox's counter


def generator_of(key: int, skipped: int = 0) -> np.random.Generator:
    """The stream of a key, by the generator that this thread lends again at the next call; see `Streams.borrowed`.

    Args:
        skipped: steps of the generator's counter, of `PER_STEP` 64-bit numbers each, that are jumped over.
    """
    inner = _BORROWED.state["state"]
    inner["key"][:] = key & _WORD, key >> 64
    inner["counter"][:] = skipped, 0, 0, 0
    _BORROWED.state["has_uint32"] = 0
    _BORROWED.bits.state = _BORROWED.state
    return _BORROWED.generator


_KERNELS: list[ModuleType] = []  # `compiled_streams`, once it has drawn the same numbers


def compile_rows() -> None:
    """Draw rows of numbers by machine code from here on in this process, where that gives NumPy's bits. Needs numba."""
    from h2fdp import compiled_streams

    if not _KERNELS and compiled_streams.proved():
        _KERNELS.append(compiled_streams)


def standard_normal_rows(keys: Sequence[int], size: int) -> NDArray[np.float32]:
    """(s, size) from N(0, 1): in each row the first numbers of the stream of this key."""
    normals = np.empty((len(keys), size), np.float32)
    if _KERNELS:
        _KERNELS[0].normals(_KERNELS[0].halves(keys), normals)
        return normals
    for row, key in zip(normals, keys, strict=True):
        generator_of(key).standard_normal(dtype=np.float32, out=row)
    return normals


def uniform_rows(
    keys: Sequence[Sequence[int]], owners: NDArray[np.int64], steps: NDArray[np.int64], length: int
) -> NDArray[np.float64]:
    """(slots, rows, length) in [0, 1): each row from the stream of keys[slot][owners[row]].

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
    if _KERNELS and len(keys):
        halves = _KERNELS[0].halves([key for of_slot in keys for key in of_slot])
        _KERNELS[0].uniforms(halves.reshape(len(keys), -1, 2), owners, steps, drawn)
        return drawn
    # Rows that follow each other in a stream are read at once.
    firsts = np.flatnonzero((np.diff(owners, prepend=-1) != 0) | (np.diff(steps, prepend=-1) != length // PER_STEP))
    stops = [*firsts[1:].tolist(), len(owners)]
    for of_slot, rows in zip(keys, drawn, strict=True):
        for first, stop in zip(firsts.tolist(), stops, strict=False):
            generator_of(of_slot[owners[first]], int(steps[first])).random(out=rows[first:stop])
    return drawn


@dataclass(frozen=True, slots=True)
class Streams:
    """All streams of one run.

    Attributes:
        attempt: empty, or a name under which every stream differs: what a run draws after it was resumed in another
            environment. The same noise on another update would be a second release outside the account.
        secret: the key of the hash, up to 64 bytes; empty where an attacker who knows the seed may know all draws.

    >>> streams = Streams(seed=1)
    >>> float(streams.open("library", "trust").random()) == float(streams.open("library", "trust").random())
    True
    """

    seed: int
    attempt: str = ""
    secret: bytes = field(default=b"", repr=False)

    @property
    def public(self) -> Streams:
        """The streams of what everybody may know: who takes part, not who adds which noise.

        >>> Streams(seed=1, secret=b"unknown").public == Streams(seed=1)
        True
        """
        return replace(self, secret=b"")

    def key(self, node: str, purpose: str, interval: int = 0, slot: int = 0) -> int:
        """The 128-bit key of a stream; lengths are hashed with the names, so no two streams share an encoding."""
        node_bytes, purpose_bytes = node.encode(), purpose.encode()
        head = f"{self.seed}|{interval}|{slot}|{len(node_bytes)}|{len(purpose_bytes)}|".encode()
        tail = f"|{self.attempt}".encode() if self.attempt else b""
        message = head + node_bytes + purpose_bytes + tail
        return int.from_bytes(blake2b(message, digest_size=16, key=self.secret).digest(), "little")

    def open(self, node: str, purpose: str, interval: int = 0, slot: int = 0) -> np.random.Generator:
        """A fresh generator at the start of the stream of this node, purpose, interval and slot."""
        return np.random.Generator(np.random.Philox(key=self.key(node, purpose, interval, slot)))

    def borrowed(self, node: str, purpose: str, interval: int = 0, slot: int = 0) -> np.random.Generator:
        """The stream of `open`, by a generator that this thread lends again at the next call: four times as fast.

        >>> streams = Streams(seed=1)
        >>> float(streams.borrowed("library", "trust").random()) == float(streams.open("library", "trust").random())
        True
        """
        return generator_of(self.key(node, purpose, interval, slot))
