"""The radio's two choices by name: how channels fade, and how devices share one. A new one is a class and a line here.

Their names are those of `radio.fading` and `radio.access` in a topology file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from h2fdp.errors import UserError
from h2fdp.radio.mean_cost import mean_inverse_log
from h2fdp.topology.arrays import Floats, Integers


class Fading(Protocol):
    """How the power |u|^2 of a channel changes from interval to interval; its mean is 1."""

    def least(self, floor: float) -> float:
        """The least power that is drawn, where draws below `floor` are raised to it."""
        ...

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) powers of one interval, the first ones the same for every size."""
        ...

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """(I,) the mean of bits / R over draws, R = W log2(1 + SNR |u|^2)."""
        ...


class Rayleigh:
    """u ~ CN(0, 1): |u|^2 is exponential with mean 1. The mean of 1/R would be infinite without a floor."""

    def least(self, floor: float) -> float:
        """See `Fading.least`."""
        return floor

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """See `Fading.draw`."""
        return np.maximum(stream.standard_exponential(size), floor)

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """See `Fading.mean_seconds`; by quadrature."""
        mean: Floats = bits * np.log(2.0) / bandwidth_hz * mean_inverse_log(snr, floor)
        return mean


class NoFading:
    """|u|^2 = 1 always."""

    def least(self, floor: float) -> float:
        """See `Fading.least`."""
        return 1.0

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """See `Fading.draw`."""
        return np.ones(size)

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """See `Fading.mean_seconds`."""
        mean: Floats = bits / (bandwidth_hz * np.log1p(snr) / np.log(2.0))
        return mean


class Access(Protocol):
    """How the devices of an access point share its channel when all send up."""

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) seconds until all messages are at each access point.

        Args:
            seconds: (K,) of each device's message over the whole bandwidth.
            snr: (K,) signal-to-noise ratio there.
            points: (K,) each device's access point.
        """
        ...


class Tdma:
    """Devices take turns."""

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """See `Access.uplink_seconds`."""
        return gathered(np.add, seconds, points, count)


class Ofdma:
    """Devices send at once, each over an equal part of the bandwidth: R = W/s log2(1 + s SNR)."""

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """See `Access.uplink_seconds`."""
        sharing = np.bincount(points, minlength=count)[points]
        shared = seconds * sharing * np.log1p(snr) / np.log1p(sharing * snr)
        return gathered(np.maximum, shared, points, count)


FADING: Mapping[str, Fading] = MappingProxyType({"rayleigh": Rayleigh(), "none": NoFading()})
ACCESS: Mapping[str, Access] = MappingProxyType({"tdma": Tdma(), "ofdma": Ofdma()})


def gathered(gather: np.ufunc, values: Floats, points: Integers, count: int) -> Floats:
    """(count,) the sum or maximum over each access point's devices of (K,) values; 0 without any."""
    found = np.zeros(count)
    gather.at(found, points, values)
    return found


def fading_of(name: str) -> Fading:
    """The fading of this name.

    Raises:
        UserError: there is none.
    """
    if name not in FADING:
        raise UserError(f'expected one of {", ".join(FADING)}, found "{name}"', key="radio.fading")
    return FADING[name]


def access_of(name: str) -> Access:
    """The access of this name.

    Raises:
        UserError: there is none.
    """
    if name not in ACCESS:
        raise UserError(f'expected one of {", ".join(ACCESS)}, found "{name}"', key="radio.access")
    return ACCESS[name]
