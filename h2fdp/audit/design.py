"""The canaries of one audit: whose record each is, on which coordinate, and whether it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from h2fdp.streams import Streams

CanaryKind = Literal["dirac", "dominating"]


@dataclass(frozen=True)
class CanaryDesign:
    """N canaries; canary j owns the j-th of N coordinates that are appended to the model.

    Attributes:
        kind: `dirac` canaries have a gradient of the clip norm, beside the data as they are; `dominating` ones
            outweigh every other record, and the data beside them are the worst for them: they pull the other way.
        owners: (N,) number over the whole network of the device that each is a record of.
        included: (N,) bool, the fair coins.
    """

    kind: CanaryKind
    owners: np.ndarray
    included: np.ndarray

    @classmethod
    def drawn(cls, streams: Streams, kind: CanaryKind, canaries: int, devices: np.ndarray) -> CanaryDesign:
        """Canaries spread evenly over `devices`, one after another, with coins from the run's streams.

        >>> CanaryDesign.drawn(Streams(1), "dirac", canaries=5, devices=np.array([3, 8])).owners
        array([3, 8, 3, 8, 3])
        """
        owners = devices[np.arange(canaries) % len(devices)]
        return cls(kind, owners, streams.open("audit", "canary-coins").random(canaries) < 0.5)

    @property
    def size(self) -> int:
        """N."""
        return len(self.owners)

    def coordinates(self, devices: int) -> list[np.ndarray]:
        """For each device of the network, the coordinates from 0 of its canaries; many have none.

        >>> CanaryDesign("dirac", np.array([1, 0, 1]), np.array([True, True, False])).coordinates(devices=2)
        [array([1]), array([0, 2])]
        """
        by_owner = np.argsort(self.owners, kind="stable")
        return np.split(by_owner, np.cumsum(np.bincount(self.owners, minlength=devices))[:-1])

    def per_batch(self, rates: np.ndarray) -> float:
        """Canaries in a batch, on average, of the device that has the most of them.

        Args:
            rates: (I,) q_i of all devices.
        """
        expected = np.bincount(self.owners, minlength=len(rates)) * rates / 2
        return float(expected.max())
