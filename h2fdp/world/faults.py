"""Faults of the simulated world: edge servers that are offline, devices that drop out, devices that are slow.

They are keyed draws that look at no data and know no method: a device meets the same faults whoever takes part beside
it, however devices are placed, in a tree and in its star. A higher probability adds faults and takes none away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from h2fdp.rows import Rows
from h2fdp.streams import PER_STEP, Streams

_ROUNDING = 1e-9  # 0.1 of 30 steps is 3, also where a float says a little more


@dataclass(frozen=True)
class DeviceFaults(Rows):
    """What befalls the devices of an access point in one interval.

    Attributes:
        lasts: (s,) the share of the interval after which a device drops out, below 1; 1 where it stays.
        slow: (s,) whether it is a straggler.
        diligence: (s,) in [0, 1): where a straggler's part of the work lies within `fraction`.
        fraction: the smallest and the largest part of its work that a straggler finishes.
    """

    lasts: np.ndarray
    slow: np.ndarray
    diligence: np.ndarray
    fraction: tuple[float, float]

    def slots(self, planned: int) -> np.ndarray:
        """(s,) whole slots of `planned` in which each device is there."""
        return np.asarray(np.floor(self.lasts * planned).astype(np.int64))

    def work(self, planned: int) -> np.ndarray:
        """(s,) units of work - local steps, epochs - of `planned` that each would finish if it stayed.

        A straggler finishes a whole number, uniform over those between the two fractions of `planned`, at least one:
        of ten epochs under [0.1, 0.9], 1 to 9 (the stragglers of Upcycled-FL).
        """
        most = max(1, int(np.floor(self.fraction[1] * planned + _ROUNDING)))
        least = min(most, max(1, int(np.ceil(self.fraction[0] * planned - _ROUNDING))))
        part = least + np.floor(self.diligence * (most - least + 1)).astype(np.int64)
        return np.where(self.slow, part, planned)


@dataclass(frozen=True)
class Faults:
    """How often what fails; nothing does by default.

    Attributes:
        device_dropout: probability that a device drops out of an interval that it takes part in.
        straggler_probability: that it finishes part of its work.
        straggler_fraction: smallest and largest part.
        edge_outage: probability that an outage of an edge server begins, for each edge server and interval.
        outage_intervals: n, how long an outage lasts.
    """

    device_dropout: float = 0.0
    straggler_probability: float = 0.0
    straggler_fraction: tuple[float, float] = (0.1, 0.9)
    edge_outage: float = 0.0
    outage_intervals: int = 1

    @property
    def of_devices(self) -> bool:
        """Whether devices may fail."""
        return self.device_dropout > 0 or self.straggler_probability > 0

    @property
    def possible(self) -> bool:
        """Whether anything may fail, so that no two intervals need be alike."""
        return self.of_devices or self.edge_outage > 0

    def offline(self, streams: Streams, edge: str, interval: int) -> bool:
        """Whether an edge server, or an access point, is offline in an interval counted from 0.

        It is if an outage began in this interval or one of the n - 1 before it; outages that overlap are one longer
        one. So from interval n - 1 on it is offline with probability 1 - (1 - p)^n.
        """
        if self.edge_outage == 0:
            return False
        first = max(0, interval + 1 - self.outage_intervals)
        bits = np.random.Philox(key=streams.key(edge, "outage"))  # the k-th number of one stream is interval k's
        bits.advance(first // PER_STEP)
        begun = np.random.Generator(bits).random(first % PER_STEP + interval + 1 - first)
        return bool((begun[first % PER_STEP :] < self.edge_outage).any())

    def device_faults(self, streams: Streams, edge: str, interval: int, size: int) -> DeviceFaults:
        """What befalls the devices of an edge server, or an access point, in an interval: all `size` of them."""
        draws = streams.open(edge, "faults", interval).random((size, 4))
        lasts = np.where(draws[:, 0] < self.device_dropout, draws[:, 1], 1.0)
        return DeviceFaults(lasts, draws[:, 2] < self.straggler_probability, draws[:, 3], self.straggler_fraction)
