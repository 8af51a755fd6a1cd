"""Multiple access: how devices share the channel of their access point; `radio.access` of a topology file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from h2fdp.config.fields import Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Access(ABC):
    """How the devices of an access point share its channel when all of them upload; a subclass defines
    `uplink_seconds`."""

    @abstractmethod
    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) seconds until all messages have arrived at each access point; 0 where no device uploads.

        Args:
            seconds: (K,) of each device's message over the whole bandwidth.
            snr: (K,) its signal-to-noise ratio there.
            points: (K,) its access point, from 0 to count - 1.
            count: number of access points.
        """


ACCESSES: Choices[Options] = Choices(OwnKind("an access, derived from `h2fdp.topology.Access`", ("uplink_seconds",)))


@ACCESSES.register
class Tdma(Access, Options):
    """Devices take turns.

    >>> Tdma().uplink_seconds(np.array([2.0, 1.0, 4.0]), np.ones(3), np.array([0, 0, 2]), 3).tolist()
    [3.0, 0.0, 4.0]
    """

    name: Literal["tdma"] = "tdma"

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) the sum over each access point's devices."""
        return gathered(np.add, seconds, points, count)


@ACCESSES.register
class Ofdma(Access, Options):
    """Devices send at once, each over an equal part of the bandwidth: R = W/s log2(1 + s SNR)."""

    name: Literal["ofdma"] = "ofdma"

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) the longest of each access point's devices."""
        sharing = np.bincount(points, minlength=count)[points]
        shared = seconds * sharing * np.log1p(snr) / np.log1p(sharing * snr)
        return gathered(np.maximum, shared, points, count)


def gathered(gather: np.ufunc, values: Floats, points: Integers, count: int) -> Floats:
    """(count,) the sum or maximum over each access point's devices of (K,) values; 0 without any."""
    found = np.zeros(count)
    gather.at(found, points, values)
    return found
