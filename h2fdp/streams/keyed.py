"""Keyed randomness: every random draw of a run comes from a stream named by what it is for.

There is no generator state anywhere. A stream is the Philox generator under the 128-bit key
``blake2b(seed, node, purpose, interval, slot)``, so a draw is the same whatever was drawn before it, on any
host, and again after a crash. What protects privacy is drawn under a secret key besides, for a seed can be guessed.
(torch's CPU generator keeps 32 bits of its seed: among 20,000 noise vectors two would be equal with a probability of
5 %, and a repeated noise vector breaks privacy. Hence Philox.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
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


def generator_of(key: int, skipped: int = 0) -> np.random.Generator:
    """The stream of a key, by the generator that this thread lends again at the next call; see `Streams.borrowed`.

    Args:
        skipped: steps of the generator's counter, of four 64-bit numbers each, that are jumped over.
    """
    inner = _BORROWED.state["state"]
    inner["key"][:] = key & _WORD, key >> 64
    inner["counter"][:] = skipped, 0, 0, 0
    _BORROWED.state["has_uint32"] = 0
    _BORROWED.bits.state = _BORROWED.state
    return _BORROWED.generator


def words_of(keys: Sequence[int]) -> NDArray[np.uint64]:
    """(s, 2) keys as Philox holds them, the lower 64 bits first."""
    return np.array([(key & _WORD, key >> 64) for key in keys], np.uint64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Streams:
    """All streams of one run.

    Attributes:
        attempt: empty, or a name under which every stream differs: what a run draws after it was resumed in another
            environment. The same noise on another update would be a second release that nobody accounts for.
        secret: the key of the hash, up to 64 bytes; empty where whoever knows the seed may know all draws.

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
        """The same stream, by a generator that this thread lends again at the next call: four times as fast.

        >>> streams = Streams(seed=1)
        >>> float(streams.borrowed("library", "trust").random()) == float(streams.open("library", "trust").random())
        True
        """
        return generator_of(self.key(node, purpose, interval, slot))
