"""`bands:EqualTime`: shares of the bandwidth under which all uploads to an access point are there at once.

    radio: {access: {name: "experiments/parts/bands:EqualTime"}}

A message that takes t seconds over the whole bandwidth W, at signal-to-noise ratio g there, takes over a share beta

    t(beta) = t ln(1 + g) / (beta ln(1 + g / beta)),

as a narrow channel has less noise: Q M / (beta W log2(1 + p |h|^2 / (N0 beta W))) written out. Of all shares whose sum
is 1, those under which all uploads end together end soonest, as what one device gains delays another (HFEL, Luo et al.,
IEEE TWC 2020; Tran et al., INFOCOM 2019). t(beta) is convex and falls, and so is its inverse: Newton's method finds the
common end from below. Devices that compute longer, or are farther away, have more of the band.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from h2fdp.network import Access
from h2fdp.network.channel import gathered
from h2fdp.network.devices import Floats, Integers

_NEWTON = 60  # steps at most, of which a few are needed
_LONGEST = float(np.log(1500.0))  # no ln(1 + g / beta) of floats is more than e to this
_SMALL = 1e-4  # ratios below which a difference is summed as a series


class EqualTime(Access):
    """Devices send at once, each over a part of the band, and end together; energy and delay are over that part."""

    queues: ClassVar[bool] = False
    billed: ClassVar[bool] = True

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) the common end of each access point's devices."""
        return gathered(np.maximum, self.waits(seconds, snr, points, np.zeros(len(seconds))), points, count)

    def waits(self, seconds: Floats, snr: Floats, points: Integers, lead: Floats) -> Floats:
        """(K,) seconds of each upload over its share."""
        return equal_time(seconds, snr, points, lead)


def seconds_over(part: Floats, seconds: Floats, snr: Floats) -> Floats:
    """(K,) seconds of messages over these parts of the bandwidth.

    >>> seconds_over(np.array([1.0, 0.5]), np.array([4.0, 4.0]), np.array([3.0, 3.0])).round(3).tolist()
    [4.0, 5.699]
    """
    return np.asarray(seconds * np.log1p(snr) / (part * np.log1p(snr / part)))


def _slope(part: Floats, snr: Floats) -> Floats:
    """-d ln t / d ln beta, from 0 (all power, no bandwidth is missing) to 1."""
    ratio = snr / part
    small = np.minimum(ratio, _SMALL)
    large = np.maximum(ratio, _SMALL)
    exact = 1 - large / ((1 + large) * np.log1p(large))
    slope: Floats = np.where(ratio < _SMALL, small / 2 - 5 / 12 * small**2, exact)
    return slope


def parts_for(within: Floats, seconds: Floats, snr: Floats) -> Floats:
    """(K,) parts of the bandwidth over which messages take so long; `within` is at least `seconds`."""
    wanted = np.log(seconds) + np.log(np.log1p(snr)) - np.log(within)
    least = wanted - _LONGEST
    part = np.minimum(wanted - np.log(np.log1p(snr)), 0.0)  # its logarithm; too much, as ln(1 + g / beta) is more
    for _ in range(_NEWTON):  # from below from the second step on, as the logarithm of 1 / t is concave in this one
        beta = np.exp(part)
        found = part + np.log(np.log1p(snr / beta))
        with np.errstate(over="ignore"):  # of a hardly audible device, whose seconds do not tell its part
            before, part = part, np.clip(part + (wanted - found) / _slope(beta, snr), least, 0.0)
        if np.abs(part - before).max(initial=0.0) < 1e-14:
            break
    return np.asarray(np.exp(part))


def equal_time(seconds: Floats, snr: Floats, points: Integers, lead: Floats) -> Floats:
    """(K,) seconds of each upload where those of an access point end together, over shares of sum 1.

    Args:
        seconds: (K,) over the whole bandwidth.
        snr: (K,) there.
        points: (K,) access points.
        lead: (K,) seconds by which a device begins before others, and so has longer.

    >>> equal_time(np.array([1.0, 3.0]), np.array([3.0, 3.0]), np.array([0, 0]), np.zeros(2)).round(3).tolist()
    [3.217, 3.217]
    """
    if not len(seconds):
        return seconds
    _, at = np.unique(points, return_inverse=True)
    end = np.full(int(at.max()) + 1, -np.inf)
    np.maximum.at(end, at, seconds - lead)  # as if each had the channel alone: too soon
    for _ in range(_NEWTON):
        within = np.maximum(end[at] + lead, seconds)
        part = parts_for(within, seconds, snr)
        total = np.bincount(at, part)
        later = (total - 1) / np.bincount(at, part / (within * _slope(part, snr)))
        if (later <= 1e-15 * np.abs(end)).all():
            break
        end = end + np.maximum(later, 0.0)
    return seconds_over(part / total[at], seconds, snr)
