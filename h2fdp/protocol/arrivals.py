"""Faults, and what they leave of the tasks of an interval: the uploads that arrive and their numbers of steps.

Edge servers are offline, devices drop out or are slow. Faults are keyed draws that look at no data and know no method:
a device meets the same faults with all others that take part, however devices are placed, in a tree and in its star. A
higher probability adds faults and takes none away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from h2fdp.costs.batteries import Batteries
from h2fdp.costs.traffic import Tasks
from h2fdp.data.records import Rows
from h2fdp.streams import PER_STEP, Streams

_ROUNDING = 1e-9  # 0.1 of 30 steps is 3, also where a float says a little more


@dataclass(frozen=True)
class DeviceFaults(Rows):
    """Faults of the devices of an access point in one interval.

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
    """The probabilities of failures; nothing fails by default.

    Attributes:
        device_dropout: probability that a device drops out of an interval that it takes part in.
        straggler_probability: that it finishes part of its work.
        straggler_fraction: smallest and largest part.
        edge_outage: probability that an outage of an edge server begins, for each edge server and interval.
        outage_intervals: n, how long an outage lasts.
        sends: interval from 0 -> (I,) whether each device's channel lets it take part; None where it always does.
        batteries: of devices; None where these have energy without end.
    """

    device_dropout: float = 0.0
    straggler_probability: float = 0.0
    straggler_fraction: tuple[float, float] = (0.1, 0.9)
    edge_outage: float = 0.0
    outage_intervals: int = 1
    sends: Callable[[int], np.ndarray] | None = None
    batteries: Batteries | None = None

    @property
    def of_devices(self) -> bool:
        """Whether devices may fail."""
        return self.device_dropout > 0 or self.straggler_probability > 0

    @property
    def possible(self) -> bool:
        """Whether anything may fail, so that no two intervals need be alike."""
        return self.of_devices or self.edge_outage > 0 or self.absences

    @property
    def absences(self) -> bool:
        """Whether devices may be kept from an interval by their channels or their batteries."""
        return self.sends is not None or self.batteries is not None

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
        beginnings = np.random.Generator(bits).random(first % PER_STEP + interval + 1 - first)
        return bool((beginnings[first % PER_STEP :] < self.edge_outage).any())

    def device_faults(self, streams: Streams, edge: str, interval: int, size: int) -> DeviceFaults:
        """Faults of the devices of an edge server, or an access point, in an interval: all `size` of them."""
        draws = streams.open(edge, "faults", interval).random((size, 4))
        lasts = np.where(draws[:, 0] < self.device_dropout, draws[:, 1], 1.0)
        return DeviceFaults(lasts, draws[:, 2] < self.straggler_probability, draws[:, 3], self.straggler_fraction)


Points = Sequence[tuple[str, int]]  # access points of a subnet: name, number of devices; in the order of the devices


def reachable(faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray) -> np.ndarray:
    """The reachable ones of the devices `rows`, whose edge server, or access point, is online."""
    if faults.edge_outage == 0:
        return rows
    offline = [faults.offline(streams, name, interval) for name, _ in points]
    if not any(offline):
        return rows
    return np.asarray(rows[~np.repeat(offline, [size for _, size in points])[rows]])


def tasks_under(
    faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray, segments: Sequence[int]
) -> Tasks:
    """The tasks of the devices `rows` in these segments."""
    planned = Tasks.planned(rows, segments)
    if not faults.of_devices:
        return planned
    tasks = tasks_of(_faults_of(faults, streams, points, interval, rows), rows, segments)
    return planned if (tasks.steps == planned.steps).all() else tasks


def epochs_under(
    faults: Faults,
    streams: Streams,
    points: Points,
    interval: int,
    rows: np.ndarray,
    segments: Sequence[int],
    epochs: int,
    steps_per_epoch: np.ndarray,
) -> Tasks:
    """The tasks of the devices `rows` that go through their records `epochs` times, each at its own pace.

    A straggler finishes whole epochs: of ten under fractions [0.1, 0.9] 1 to 9 (the stragglers of Upcycled-FL). A
    device that drops out uploads nothing, since there is one aggregation, at the end.

    Args:
        steps_per_epoch: (s,) of these devices.
    """
    if not faults.of_devices:
        return Tasks(rows, tuple(segments), epochs * steps_per_epoch[None], np.zeros(len(rows), dtype=np.int64))
    device_faults = _faults_of(faults, streams, points, interval, rows)
    work = device_faults.work(epochs) * steps_per_epoch
    stays = device_faults.lasts >= 1
    lost = np.where(stays, 0, np.floor(device_faults.lasts * work).astype(np.int64))
    return Tasks(rows, tuple(segments), (work * stays)[None], lost)


def _faults_of(faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray) -> DeviceFaults:
    return DeviceFaults.joined([faults.device_faults(streams, name, interval, size) for name, size in points]).part(
        rows
    )


def tasks_of(device_faults: DeviceFaults, rows: np.ndarray, segments: Sequence[int]) -> Tasks:
    """The tasks of the devices `rows`, which have these faults (s,).

    - A device that drops out receives the model, works for some slots and vanishes: it takes part in the aggregations
      that end before, and what it did after the last of them is lost. It is back in the next interval.
    - A straggler works all the time, at its pace: of e steps in tau slots it has done floor(e t / tau) after t of them.
      Without a step since the last broadcast it has nothing to upload.
    """
    ends = np.cumsum(segments)[:, None]  # (segments, 1)
    slots = int(ends[-1, 0])
    there, work = device_faults.slots(slots), device_faults.work(slots)
    done = work * ends // slots
    steps = np.diff(done, axis=0, prepend=0) * (ends <= there)
    begins = ends - np.array(segments)[:, None] <= there
    return Tasks(rows, tuple(segments), steps, work * there // slots - steps.sum(axis=0), there=begins)
