"""What secure aggregation adds to an interval's messages (Bonawitz et al. 2017, with an honest-but-curious server).

A sum that n devices begin, a_K and a_S being the bits of a public key and of a share:

1. each sends two public keys and receives those of the n - 1 others, before its local steps;
2. each sends an encrypted pair of shares for every other device and receives as many;
3. after its local steps it sends its vector under masks;
4. if enough of them did, each sends one share for each of the n, by which the masks of the sum are removed.

Together 2 n a_K + (5 n - 4) a_S bits sent and received by a device, and its vector (Bonawitz et al., Sec. 7.1). Masks
serve once: the next sum begins anew. Who vanishes during its local steps has paid for 1 and 2, and the uploads to a sum
that is not opened for 3. Everything is counted in messages, the Q M bits of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class ExchangeSizes:
    """Sizes in messages: of a public key, of a share, and of a vector under masks.

    >>> sizes = ExchangeSizes.of_bits(key=256, share=256, vector=2**20 * 26, message=2**20 * 16)
    >>> n = 1024
    >>> round(sizes.vector + 2 * n * sizes.key + (5 * n - 4) * sizes.share, 2)  # Bonawitz et al., Sec. 1: 1.73
    1.73
    """

    key: float
    share: float
    vector: float

    @classmethod
    def of_bits(cls, *, key: int, share: int, vector: int, message: int) -> Self:
        """Those of so many bits each."""
        return cls(key / message, share / message, vector / message)

    def sent(self, parties: int) -> float:
        """Keys and shares that one of so many sends for a sum that is opened."""
        return 2 * self.key + (3 * parties - 2) * self.share

    def keys_and_shares(self, devices: int) -> float:
        """What a device sends and receives for a sum of so many, beside its vector."""
        return 2 * devices * self.key + (5 * devices - 4) * self.share


@dataclass(frozen=True, eq=False)
class SumMessages:
    """What the devices of a subnet do for the secure sums of an interval, one for each segment.

    Attributes:
        begun: (segments, s) whether each device is there when the segment begins.
        sent: (segments, s) whether it sends its vector.
        opened: (segments,) whether the sum is opened.
    """

    sizes: ExchangeSizes
    begun: np.ndarray
    sent: np.ndarray
    opened: np.ndarray

    @classmethod
    def planned(cls, sizes: ExchangeSizes, segments: int, devices: int) -> Self:
        """Those of devices that all do what was planned."""
        everybody = np.ones((segments, devices), dtype=bool)
        return cls(sizes, everybody, everybody, np.ones(segments, dtype=bool))

    @property
    def _others(self) -> np.ndarray:
        """(segments, 1) n - 1."""
        return np.asarray(np.maximum(self.begun.sum(axis=1, keepdims=True) - 1, 0))

    @property
    def set_up(self) -> np.ndarray:
        """(segments, s) keys and shares that a device sends before its local steps."""
        return np.asarray(self.begun * (2 * self.sizes.key + 2 * self._others * self.sizes.share))

    @property
    def others_keys(self) -> np.ndarray:
        """(segments, s) keys that it receives."""
        return np.asarray(self.begun * 2 * self._others * self.sizes.key)

    @property
    def others_shares(self) -> np.ndarray:
        """(segments, s) shares that it receives."""
        return np.asarray(self.begun * 2 * self._others * self.sizes.share)

    @property
    def unopened(self) -> np.ndarray:
        """(segments, s) vectors that it sends to sums that are not opened."""
        return np.asarray((self.sent & ~self.opened[:, None]) * self.sizes.vector)

    @property
    def unmasking(self) -> np.ndarray:
        """(segments, s) shares that it sends once the sum is opened: of each device that began it."""
        return np.asarray((self.sent & self.opened[:, None]) * (self._others + 1) * self.sizes.share)

    @property
    def sent_more(self) -> np.ndarray:
        """(segments, s) all that a device sends beyond a message for each opened upload."""
        vectors = (self.sent & self.opened[:, None]) * (self.sizes.vector - 1)
        return np.asarray(self.set_up + vectors + self.unopened + self.unmasking)

    @property
    def received_more(self) -> np.ndarray:
        """(segments, s) all that it receives beyond models."""
        return np.asarray(self.others_keys + self.others_shares)
