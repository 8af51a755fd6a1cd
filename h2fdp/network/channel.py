"""Channels of devices: path loss, fading and multiple access; `radio:` of a topology file names a model of each.

Path loss says how much weaker a signal arrives, fading how the power |u|^2 of a channel changes from interval to
interval, access how devices share the channel of their access point. The mean cost of a message is E[1/R], R = W log2(1
+ SNR |u|^2): quadrature, not sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from h2fdp.config.fields import Expect, Options, Positive
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind
from h2fdp.network.devices import Column, Decibels, Floats, Integers

_AT_ONCE = 1 << 15  # devices whose arrays stay in the processor's cache
_FARTHEST = 45.0  # an exponential is above it with probability 3e-20, and costs less there than anywhere below
_LONGEST_PANEL = 4.5  # in ln x
_POINTS = 24  # in each panel
_HALVINGS = 40  # of the panels towards both ends of a quantile's range
_POINTS_OF_QUANTILE = 8  # in each of these panels
Exponent = Annotated[float, Field(ge=0, le=20), Expect("a number from 0 to 20")]
Truncation = Annotated[float, Field(ge=-100, le=0), Expect("a number from -100 to 0")]


class PathLoss(ABC):
    """The gain of each device's channel, the same in every interval; a subclass defines `gain_db`."""

    # The paper is silent on distances; 50 m is ours.
    columns: ClassVar[Mapping[str, Column]] = {
        "distance_m": Column(50.0, "m", Positive, "distance to the edge server, m.", stream="distance")
    }

    @abstractmethod
    def gain_db(self, distance_m: Floats, stream: np.random.Generator) -> Floats:
        """(s,) gains in dB, negative for a loss.

        Args:
            distance_m: (s,) from the devices of one access point to it.
            stream: for what the model draws, such as shadowing. It is the access point's own and restarts at every
                call, so that a run sees the same channels whenever it asks.
        """


PATH_LOSSES: Choices[Options] = Choices(
    OwnKind("a path loss, derived from `h2fdp.network.PathLoss`", ("gain_db",)), unnamed="log-distance"
)


@PATH_LOSSES.register
class LogDistance(PathLoss, Options):
    """beta_0 - 10 alpha log10(d / 1 m) dB (H2FDP, Appendix D, where d_0 is 1 m).

    Attributes:
        beta0_db: beta_0, the gain at a distance of 1 m.
        exponent: alpha, how fast the gain falls with the distance.

    >>> LogDistance().gain_db(np.array([1.0, 10.0, 100.0]), np.random.default_rng()).tolist()
    [-30.0, -67.5, -105.0]
    """

    name: Literal["log-distance"] = "log-distance"
    beta0_db: Decibels = -30.0
    exponent: Exponent = 3.75

    def gain_db(self, distance_m: Floats, stream: np.random.Generator) -> Floats:
        """(s,) gains in dB."""
        return self.beta0_db - 10 * self.exponent * np.log10(distance_m)


class Fading(ABC):
    """The distribution of |u|^2, whose mean is 1; a subclass defines `quantile`, and the rest follows from it.

    Powers below `floor` (`radio.fading_floor_db`) are raised to it: without a floor the mean of 1/R may be infinite.
    """

    @abstractmethod
    def quantile(self, probability: Floats) -> Floats:
        """(n,) the powers that a draw stays below with these probabilities, each in [0, 1)."""

    def least(self, floor: float) -> float:
        """The least power that is drawn."""
        return max(floor, float(self.quantile(np.zeros(1))[0]))

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) powers of one interval; the first ones are the same for every size."""
        return np.maximum(self.quantile(stream.random(size)), floor)

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """(I,) the mean of bits / R over draws, from (I,) signal-to-noise ratios where |u|^2 = 1."""
        points, weights = self.quadrature(floor)
        mean: Floats = bits * np.log(2.0) / bandwidth_hz * _mean(snr, points, weights)
        return mean

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """Points x and weights of the mean of f(max(|u|^2, floor)), with panels that grow from both ends of the
        quantile."""
        floored = self._share_below(floor)
        growing = 0.5 ** np.arange(_HALVINGS, 0, -1)
        ends = np.concatenate([[0.0], growing, 1 - growing[-2::-1], [1.0]])
        nodes, node_weights = np.polynomial.legendre.leggauss(_POINTS_OF_QUANTILE)
        half = np.diff(ends)[:, None] / 2
        share = (ends[:-1, None] + half * (1 + nodes)).ravel()
        weights = (half * node_weights).ravel() * (1 - floored)
        points = np.maximum(self.quantile(floored + (1 - floored) * share), floor)
        return [floor, *points.tolist()], [floored, *weights.tolist()]

    def _share_below(self, floor: float) -> float:
        """P[|u|^2 < floor], by bisection."""
        low, high = 0.0, 1.0
        for _ in range(52):
            middle = (low + high) / 2
            below = float(self.quantile(np.array([middle]))[0]) < floor
            low, high = (middle, high) if below else (low, middle)
        return low


FADINGS: Choices[Options] = Choices(OwnKind("a fading, derived from `h2fdp.network.Fading`", ("draw", "mean_seconds")))


@FADINGS.register
class Rayleigh(Fading, Options):
    """u ~ CN(0, 1): |u|^2 is exponential with mean 1. The mean of 1/R would be infinite without a floor."""

    name: Literal["rayleigh"] = "rayleigh"

    def quantile(self, probability: Floats) -> Floats:
        """(n,) - ln(1 - probability)."""
        return np.asarray(-np.log1p(-probability))

    def least(self, floor: float) -> float:
        """The floor."""
        return floor

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) powers."""
        return np.maximum(stream.standard_exponential(size), floor)

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """Points x and weights of E[f(max(X, floor))] = P[X < floor] f(floor) + the integral of f(x) e^-x beyond.

        With y = ln x the integrand of E[1 / ln(1 + SNR max(X, floor))], e^y exp(-e^y) / ln(1 + SNR e^y), is smooth at
        every SNR (its nearest singularities lie pi off the real axis, and exp(-e^y) falls fast beyond y = 0), so a few
        Gauss-Legendre points for each stretch of y give a relative accuracy of 1e-11 or better.
        """
        points, weights = [floor], [-float(np.expm1(-floor))]
        if floor < _FARTHEST:
            span = float(np.log(_FARTHEST / floor))
            panels = int(np.ceil(span / _LONGEST_PANEL))
            nodes, node_weights = np.polynomial.legendre.leggauss(_POINTS)
            half = span / panels / 2
            for panel in range(panels):
                x = floor * np.exp(half * (2 * panel + 1 + nodes))
                points += x.tolist()
                weights += (half * node_weights * x * np.exp(-x)).tolist()
        return points, weights


@FADINGS.register
class NoFading(Fading, Options):
    """|u|^2 = 1 always."""

    name: Literal["none"] = "none"

    def quantile(self, probability: Floats) -> Floats:
        """(n,) ones."""
        return np.ones(len(probability))

    def least(self, floor: float) -> float:
        """1, whatever the floor."""
        return 1.0

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) ones."""
        return np.ones(size)

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """One point."""
        return [1.0], [1.0]

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """(I,) bits / R."""
        mean: Floats = bits / (bandwidth_hz * np.log1p(snr) / np.log(2.0))
        return mean


def _mean(snr: Floats, points: list[float], weights: list[float]) -> Floats:
    """(I,) the weighted sum of 1 / ln(1 + SNR x) over points x."""
    mean = np.empty_like(snr)
    for start in range(0, len(snr), _AT_ONCE):
        chunk = snr[start : start + _AT_ONCE]
        total = np.zeros_like(chunk)
        for point, weight in zip(points, weights, strict=True):
            total += weight / np.log1p(chunk * point)
        mean[start : start + _AT_ONCE] = total
    return mean


class Access(ABC):
    """The way in which devices of an access point share its channel when all of them upload; a subclass defines
    `uplink_seconds`.

    Attributes:
        queues: the channel carries one message at a time, so that messages of devices that are ready at other moments
            wait for each other; else each device has a part of the channel for itself, see `part_seconds`.
        billed: energy and delay of uploads are over the device's part of the channel, as `waits` says; else they are of
            messages over the whole of it, as in the paper.
    """

    queues: ClassVar[bool] = True
    billed: ClassVar[bool] = False

    @abstractmethod
    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) seconds until all messages have arrived at each access point; 0 where no device uploads.

        Args:
            seconds: (K,) of each device's message over the whole bandwidth.
            snr: (K,) its signal-to-noise ratio there.
            points: (K,) its access point, from 0 to count - 1.
            count: number of access points.
        """

    def part_seconds(self, seconds: Floats, snr: Floats, sharing: Integers) -> Floats:
        """(K,) seconds of each device's message where `sharing` (K,) devices have equal parts of the channel."""
        return seconds

    def waits(self, seconds: Floats, snr: Floats, points: Integers, lead: Floats) -> Floats:
        """(K,) seconds from a device's last step until its message has arrived, with those behind it in its queue.

        Who is ready sends, in turns or on its part of the channel.

        Args:
            lead: (K,) seconds by which a device is ready before the slowest of its access point.

        >>> Tdma().waits(np.array([2.0, 1.0]), np.ones(2), np.array([0, 0]), lead=np.array([0.0, 5.0])).tolist()
        [2.0, 3.0]
        """
        if not self.queues:
            return self.part_seconds(seconds, snr, np.bincount(points)[points])
        order = np.lexsort((-lead, points))  # by access point, the first that is ready first
        total = np.cumsum(seconds[order])
        last = np.searchsorted(points[order], points[order], side="right") - 1
        waiting = np.empty(len(order))
        waiting[order] = total[last] - total + seconds[order]
        return waiting


ACCESSES: Choices[Options] = Choices(OwnKind("an access, derived from `h2fdp.network.Access`", ("uplink_seconds",)))


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
    """Devices send at once, each over a part of the bandwidth: R = beta W log2(1 + SNR / beta), beta = 1/s if equal.

    Attributes:
        shares: shares of the bandwidth, which are equal. Null: for the clock alone, as in the paper; `equal`: for
            energy and delay too.
    """

    name: Literal["ofdma"] = "ofdma"
    shares: (
        Annotated[Literal["equal"], Expect("equal, or in its place the access `FOLDER/bands:EqualTime` of a clone")]
        | None
    ) = None
    queues: ClassVar[bool] = False
    nulls: ClassVar[bool] = False

    @property
    def billed(self) -> bool:  # type: ignore[override]  # by its options
        """Whether shares are stated."""
        return self.shares is not None

    def options(self) -> dict[str, Any]:
        """Shares, if any are stated."""
        return {} if self.shares is None else {"shares": self.shares}

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) the longest of each access point's devices."""
        return gathered(np.maximum, self.waits(seconds, snr, points, np.zeros(len(seconds))), points, count)

    def part_seconds(self, seconds: Floats, snr: Floats, sharing: Integers) -> Floats:
        """(K,) the longer, the narrower the part; noise is less in a narrow one."""
        return np.asarray(seconds * sharing * np.log1p(snr) / np.log1p(sharing * snr))


@ACCESSES.register
class OverTheAir(Access, Options):
    """All devices of an access point send at once, and their signals add up on the way: a number for each use of the
    channel, however many devices there are (see :mod:`h2fdp.costs.device_costs`).

    Attributes:
        truncate_db: a device whose fading is below this takes no part in an interval.
    """

    name: Literal["over-the-air"] = "over-the-air"
    truncate_db: Truncation = -10.0
    queues: ClassVar[bool] = False
    nulls: ClassVar[bool] = False

    def uplink_seconds(self, seconds: Floats, snr: Floats, points: Integers, count: int) -> Floats:
        """(count,) that of any of them."""
        return gathered(np.maximum, seconds, points, count)


def gathered(gather: np.ufunc, values: Floats, points: Integers, count: int) -> Floats:
    """(count,) the sum or maximum over each access point's devices of (K,) values; 0 without any."""
    totals = np.zeros(count)
    gather.at(totals, points, values)
    return totals
