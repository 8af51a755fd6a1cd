"""Bandwidth shares under which all uploads to an access point are there at once, and frequencies that go with them.

A message that takes t seconds over the whole bandwidth W, at signal-to-noise ratio g there, takes over a share beta

    t(beta) = t ln(1 + g) / (beta ln(1 + g / beta)),

as a narrow channel has less noise: Q M / (beta W log2(1 + p |h|^2 / (N0 beta W))) written out. Of all shares whose sum
is 1, those under which all uploads end together end soonest, as what one device gains delays another (HFEL, Luo et al.,
IEEE TWC 2020; Tran et al., INFOCOM 2019). t(beta) is convex and falls, and so is its inverse: Newton's method finds the
common end from below.

Where devices also choose how fast they compute (:mod:`h2fdp.costs.device_costs`), the best plan is

    min  w1 sum_j (E_j + p_j n t_j(beta_j)) + w2 t,   T_j + n t_j(beta_j) + waits_j <= t,   sum_j beta_j = 1

for n uploads in an interval: a convex problem in the durations. For a given deadline t, another part of the bandwidth
saves all devices of an access point equally many weighed joules, which bisection finds. The deadline is best where
another second saves w2. Then all end together, but those that compute as slowly as they may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from h2fdp.network.devices import Floats, Integers

_NEWTON = 60  # steps at most, of which a few are needed
_BISECTIONS = 26  # plans need no more digits, as costs are flat around the best one
_DOUBLINGS = 12
_TINY = 1e-300
_LONGEST = float(np.log(1500.0))  # no ln(1 + g / beta) of floats is more than e to this
_SMALL = 1e-4  # ratios below which a difference is summed as a series


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


@dataclass(frozen=True, eq=False)
class PlannedUploads:
    """What K devices send in an interval.

    Attributes:
        seconds: (K,) of an upload over the whole bandwidth.
        snr: (K,) there.
        watts: (K,) with which they send.
        points: (K,) access points.
        times: (K,) n, uploads in the interval, the same for all of an access point.
    """

    seconds: Floats
    snr: Floats
    watts: Floats
    points: Integers
    times: Floats

    def end(self, ready: Floats) -> float:
        """When the last upload is there, at the earliest, of devices that are `ready` (K,) with all else."""
        seconds = equal_time(self.seconds, self.snr, self.points, -ready / self.times)
        return float((ready + self.times * seconds).max(initial=0.0))


class JointPlan(NamedTuple):
    """A best plan: frequencies (K,), hertz, and parts (K,) of the bandwidth."""

    hertz: Floats
    parts: Floats


@dataclass(frozen=True, eq=False)
class JointProblem:
    """Shares and frequencies together: the convex problem above.

    Attributes:
        cycles, capacitance: (K,) of the whole interval.
        least, own: (K,) the range of frequencies, hertz.
        waits: (K,) seconds of the interval in which a device neither computes nor sends.
        per_joule, per_second: w1, above 0, and w2.
    """

    uploads: PlannedUploads
    cycles: Floats
    capacitance: Floats
    least: Floats
    own: Floats
    waits: Floats
    per_joule: float
    per_second: float

    def solved(self) -> JointPlan:
        """The best plan."""
        from scipy.optimize import brentq  # takes a third of a second to import

        soonest, latest = (self.uploads.end(self.waits + self.cycles / each) for each in (self.own, self.least))

        def worth(deadline: float) -> float:
            return self._under(deadline)[0] - self.per_second

        if worth(soonest) <= 0:
            return self._under(soonest)[1]
        for _ in range(_DOUBLINGS):  # slow devices may still save joules of sending
            if worth(latest) < 0:
                latest = float(brentq(worth, soonest, latest, xtol=1e-6 * latest, rtol=1e-6))
                break
            latest *= 2
        return self._under(latest)[1]

    def _under(self, deadline: float) -> tuple[float, JointPlan]:
        """Weighed joules that a second more would save, and the best plan under this deadline."""
        up = self.uploads
        _, at = np.unique(up.points, return_inverse=True)
        room = (deadline - self.waits - self.cycles / self.own) / up.times
        narrowest = np.log(parts_for(np.maximum(room, up.seconds), up.seconds, up.snr))
        widest = np.zeros_like(narrowest)

        def marginal(logarithm: Floats) -> tuple[Floats, Floats, Floats]:
            """(K,) logarithm of the weighed joules that more share saves, the seconds that it saves, and hertz."""
            part = np.exp(logarithm)
            sending = up.times * seconds_over(part, up.seconds, up.snr)
            with np.errstate(divide="ignore", invalid="ignore"):
                hertz = np.where(self.cycles > 0, self.cycles / (deadline - self.waits - sending), 0.0)
            hertz = np.clip(np.where(hertz < 0, np.inf, hertz), self.least, self.own)
            computing = np.where(hertz > self.least, self.capacitance * hertz**3, 0.0)
            sooner = sending * _slope(part, up.snr) / part
            return np.log(sooner * self.per_joule * (computing + up.watts) + _TINY), sooner, hertz

        low = np.full(int(at.max()) + 1, np.inf)
        high = np.full_like(low, -np.inf)
        np.minimum.at(low, at, marginal(widest)[0])
        np.maximum.at(high, at, marginal(narrowest)[0])
        for _ in range(_BISECTIONS):
            price = (low + high) / 2
            less, more = narrowest, widest
            for _ in range(_BISECTIONS):
                middle = (less + more) / 2
                wants_more = marginal(middle)[0] > price[at]
                less, more = np.where(wants_more, middle, less), np.where(wants_more, more, middle)
                dear = np.bincount(at, np.exp(more)) <= 1
                if (dear | (np.bincount(at, np.exp(less)) > 1)).all():
                    break
            low, high = np.where(dear, low, price), np.where(dear, price, high)
            narrowest, widest = np.where(dear[at], less, narrowest), np.where(dear[at], widest, more)
        _, sooner, hertz = marginal(more)
        saved = np.exp(price[at]) / sooner - self.per_joule * up.watts
        parts = np.exp(more)
        return float(np.maximum(saved, 0.0).sum()), JointPlan(hertz, parts / np.bincount(at, parts)[at])
