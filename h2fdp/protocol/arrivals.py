"""Faults, and what remains of a plan after those of an interval: the uploads that arrive and their numbers of steps.

Edge servers are offline, devices drop out or are slow. Faults are keyed draws that look at no data and know no method:
a device meets the same faults with all others that take part, however devices are placed, in a tree and in its star. A
higher probability adds faults and takes none away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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
    """How often what fails; nothing does by default.

    Attributes:
        device_dropout: probability that a device drops out of an interval that it takes part in.
        straggler_probability: that it finishes part of its work.
        straggler_fraction: smallest and largest part.
        edge_outage: probability that an outage of an edge server begins, for each edge server and interval.
        outage_intervals: n, how long an outage lasts.
        sends: interval from 0 -> (I,) whether each device's channel lets it take part; None where it always does.
    """

    device_dropout: float = 0.0
    straggler_probability: float = 0.0
    straggler_fraction: tuple[float, float] = (0.1, 0.9)
    edge_outage: float = 0.0
    outage_intervals: int = 1
    sends: Callable[[int], np.ndarray] | None = None

    @property
    def of_devices(self) -> bool:
        """Whether devices may fail."""
        return self.device_dropout > 0 or self.straggler_probability > 0

    @property
    def possible(self) -> bool:
        """Whether anything may fail, so that no two intervals need be alike."""
        return self.of_devices or self.edge_outage > 0 or self.sends is not None

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


@dataclass(frozen=True)
class CompletedWork:
    """The work that the devices of a subnet complete in an interval in which some fail.

    Attributes:
        steps: (segments, s) local steps behind each device's upload at each aggregation; 0 where it uploads nothing.
        lost: (s,) local steps that came to nothing: done before dropping out, or behind uploads that were not averaged.
        unopened: (segments, s) uploads that arrived at an aggregation that did not happen; None for none.
        begun: (segments, s) whether each device is there when a segment begins; None for all.
    """

    steps: np.ndarray
    lost: np.ndarray
    unopened: np.ndarray | None = None
    begun: np.ndarray | None = None

    def opening(self, opened: np.ndarray) -> CompletedWork:
        """The same where some aggregations do not happen, whatever arrives: work of these segments comes to nothing.

        Args:
            opened: (segments,) whether each aggregation happens.
        """
        kept = self.steps * opened[:, None]
        lost = self.lost + (self.steps - kept).sum(axis=0)
        return CompletedWork(kept, lost, (self.steps > 0) & ~opened[:, None], self.begun)

    def stretch(self, first: int, stop: int) -> CompletedWork:
        """That of the segments first .. stop - 1."""
        unopened, begun = (None if each is None else each[first:stop] for each in (self.unopened, self.begun))
        return CompletedWork(self.steps[first:stop], self.lost, unopened, begun)

    @property
    def arrives(self) -> np.ndarray:
        """(s,) whether anything of a device is ever uploaded."""
        return np.asarray((self.steps > 0).any(axis=0))


def reached(faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray) -> np.ndarray:
    """Those of the devices `rows` whose edge server, or access point, is online."""
    if faults.edge_outage == 0:
        return rows
    offline = [faults.offline(streams, name, interval) for name, _ in points]
    if not any(offline):
        return rows
    return np.asarray(rows[~np.repeat(offline, [size for _, size in points])[rows]])


def completed_work(
    faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray, segments: Sequence[int]
) -> CompletedWork | None:
    """The work that the devices `rows` complete in these segments; None where each does what was planned."""
    if not faults.of_devices:
        return None
    work = work_of(_faults_of(faults, streams, points, interval, rows), segments)
    return None if (work.steps == np.array(segments)[:, None]).all() else work


def completed_epochs(
    faults: Faults,
    streams: Streams,
    points: Points,
    interval: int,
    rows: np.ndarray,
    epochs: int,
    steps_per_epoch: np.ndarray,
) -> CompletedWork:
    """What the devices `rows` do that go through their records `epochs` times, each at its own pace.

    A straggler finishes whole epochs: of ten under fractions [0.1, 0.9] 1 to 9 (the stragglers of Upcycled-FL). A
    device that drops out uploads nothing, since there is one aggregation, at the end.

    Args:
        steps_per_epoch: (s,) of these devices.
    """
    if not faults.of_devices:
        return CompletedWork(epochs * steps_per_epoch[None], np.zeros(len(rows), dtype=np.int64))
    device_faults = _faults_of(faults, streams, points, interval, rows)
    work = device_faults.work(epochs) * steps_per_epoch
    stays = device_faults.lasts >= 1
    return CompletedWork(
        (work * stays)[None], np.where(stays, 0, np.floor(device_faults.lasts * work).astype(np.int64))
    )


def _faults_of(faults: Faults, streams: Streams, points: Points, interval: int, rows: np.ndarray) -> DeviceFaults:
    return DeviceFaults.joined([faults.device_faults(streams, name, interval, size) for name, size in points]).part(
        rows
    )


def work_of(device_faults: DeviceFaults, segments: Sequence[int]) -> CompletedWork:
    """What devices of these device_faults do.

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
    begun = ends - np.array(segments)[:, None] <= there
    return CompletedWork(steps, work * there // slots - steps.sum(axis=0), begun=begun)
