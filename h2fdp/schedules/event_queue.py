"""The event clock of a network in which every aggregator averages what has arrived: after K uploads, or at a deadline.

A device that has a model trains L steps and uploads. Its edge server averages as soon as K of its devices have uploaded
(or at a deadline), and sends the result to these: they begin again, the others go on from older models. After a number
of averages it uploads to the cloud, where the same happens one tier up. With K = all and no deadline every average
waits for every child: these are synchronous rounds. (FedBuff, Nguyen et al. 2022, with a buffer at each node; FedAsync,
Xie et al. 2019, is K = 1.)

Times follow from channels, processors and bits alone, which are public: so does the order of events.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from h2fdp.schedules.schedule import Arrivals, Backlog


@dataclass(frozen=True)
class Durations:
    """Seconds of what begins while the cloud has one model; (I,) of devices in the order of the network.

    Attributes:
        task: (I,) from a model's departure at the edge server to the device's last step.
        upload: (I,) of the device's message, once the channel is free.
        relay: (I,) over the wire behind its access point.
        link: (N,) between an edge server and the cloud. Both without links that ask for the moment, see `Later`.
    """

    task: np.ndarray
    upload: np.ndarray
    relay: np.ndarray
    link: np.ndarray


Later = Callable[[int, float, bool], float]
"""Number of a link, moment, whether up: seconds of a message that is ready then, beyond those of `Durations`."""


def _at_once(number: int, at_s: float, up: bool) -> float:
    return 0.0


@dataclass(frozen=True)
class Buffer:
    """The times at which an aggregator averages.

    Attributes:
        uploads: K, after so many; at most the number of its children.
        deadline_s: at the latest so long after it got or made its model, if anything has arrived; else with the next
            upload.
    """

    uploads: int
    deadline_s: float | None = None


@dataclass
class _Server:
    """An edge server's state; `began` and `tasks` are (s,) of its devices, `arrived` waits for the next average;
    `in_use` has how many devices train from, or uploaded from, each of its models and are in no average yet.

    Lists, since arrays that travel between hosts cannot be written.
    """

    buffer: Buffer
    averages: int
    began: list[int]
    tasks: list[int]
    made: int = 0
    version: int = 0
    waits: bool = True
    overdue: bool = False
    uploads: list[list[tuple[int, int, int]]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    resting: list[int] = field(default_factory=list)
    kept: tuple[int, ...] = ()
    in_use: Counter[int] = field(default_factory=Counter)

    @property
    def due(self) -> bool:
        """Whether it averages now."""
        return not self.waits and (len(self.arrived) >= self.buffer.uploads or (self.overdue and bool(self.arrived)))

    def finished(self) -> Backlog:
        """The uploads of its devices since the model came down, once the cloud averages it."""
        carried, self.kept = self.kept, tuple(sorted(self.in_use))
        return Backlog.of(self.version, self.made - len(self.uploads), self.uploads, carried, self.kept)


# Kinds of events, in this order at one moment.
_READY, _UPLOADED, _DEADLINE, _RECEIVED, _AT_CLOUD, _CLOUD_DEADLINE = range(6)


class EventQueue(Iterator[Arrivals]):
    """Plays the events of a network, without end: iterates over what arrives for each average of the cloud.

    Args:
        sizes: (N,) devices of each subnet.
        points: (I,) each device's access point.
        averages: (N,) that an edge server makes between a model of the cloud's and its upload.
        edges: (N,) buffers of the edge servers; `cloud`: of the cloud.
        queues: whether an access point's channel carries one message at a time.
        durations: number of the cloud's model -> how long what begins under it takes.
        link, relay: more of edge servers' links, and of access points', that ask for the moment; by default of none.
    """

    def __init__(
        self,
        *,
        sizes: np.ndarray,
        points: np.ndarray,
        averages: Sequence[int],
        edges: Sequence[Buffer],
        cloud: Buffer,
        queues: bool,
        durations: Callable[[int], Durations],
        link: Later = _at_once,
        relay: Later = _at_once,
    ) -> None:
        self._firsts = np.cumsum(sizes) - sizes
        self._points, self._queues, self._cloud, self._durations = points, queues, cloud, durations
        self._link, self._relay, self._asks = link, relay, (link, relay) != (_at_once, _at_once)
        self._sizes = sizes
        # Down and up; lists, as arrays that came from another process can be read alone.
        self._link_s, self._relay_s = ([[0.0] * count for _ in range(2)] for count in (len(sizes), len(points)))
        self._free = [0.0] * (int(points.max(initial=0)) + 1)
        self._servers = [
            _Server(buffer, count, [0] * size, [0] * size, resting=list(range(size)))
            for buffer, count, size in zip(edges, averages, sizes.tolist(), strict=True)
        ]
        self._events: list[tuple[float, int, int, int]] = []
        self._version = 0
        self._arrived: list[int] = []
        self._overdue = False
        self._waiting: dict[int, Counter[int]] = {}  # see `Arrivals`
        for number in range(len(self._servers)):
            self._over_link(number, 0.0, up=False)
            self._receive(number, 0.0)
        self._wait(0.0)

    def __next__(self) -> Arrivals:
        """The arrivals for the next average of the cloud."""
        while True:
            at_s, kind, number, detail = heapq.heappop(self._events)
            if kind == _AT_CLOUD:
                self._arrived.append(number)
            elif kind == _CLOUD_DEADLINE:
                self._overdue |= detail == self._version
            else:
                self._at_server(kind, number, detail, at_s)
            if len(self._arrived) >= self._cloud.uploads or (self._overdue and self._arrived):
                return self._averaged(at_s)

    def _at_server(self, kind: int, number: int, detail: int, at_s: float) -> None:
        server = self._servers[number]
        if kind == _READY:
            self._send(number, detail, at_s)
        elif kind == _UPLOADED:
            server.arrived.append(detail)
            self._waiting.setdefault(number, Counter())[detail] += 1
        elif kind == _RECEIVED:
            server.waits, server.uploads = False, []
            rows, server.resting = server.resting, []
            self._begin(number, rows, at_s)
        else:
            server.overdue |= detail == server.made
        if server.due:
            self._average(number, at_s)

    def _send(self, number: int, row: int, ready_s: float) -> None:
        """A device's upload, once its channel is free."""
        device, seconds = self._firsts[number] + row, self._durations(self._version)
        begins, point = ready_s, self._points[device]
        if self._queues:
            begins = max(ready_s, self._free[point])
            self._free[point] = begins + float(seconds.upload[device])
        sent = float(begins + seconds.upload[device])
        arrives = sent + float(seconds.relay[device]) + self._later(device, sent, up=True)
        heapq.heappush(self._events, (arrives, _UPLOADED, number, row))

    def _later(self, device: int, at_s: float, up: bool) -> float:
        """Seconds over a relay's link beyond `Durations.relay`; all are noted for `Arrivals.ways_s`."""
        later = self._relay(self._points[device], at_s, up)
        self._relay_s[int(up)][device] = float(self._durations(self._version).relay[device] + later)
        return later

    def _over_link(self, number: int, at_s: float, up: bool) -> float:
        """Seconds between an edge server and the cloud; noted likewise."""
        seconds = float(self._durations(self._version).link[number]) + self._link(number, at_s, up)
        self._link_s[int(up)][number] = seconds
        return seconds

    def _average(self, number: int, at_s: float) -> None:
        server = self._servers[number]
        taken, server.arrived, server.overdue = sorted(server.arrived), [], False
        server.uploads.append([(row, server.began[row], server.tasks[row]) for row in taken])
        server.made += 1
        for row in taken:
            server.tasks[row] += 1
            server.in_use[server.began[row]] -= 1
        server.in_use = +server.in_use
        if len(server.uploads) < server.averages:
            self._begin(number, taken, at_s)
            return
        server.waits, server.resting = True, taken
        heapq.heappush(self._events, (at_s + self._over_link(number, at_s, up=True), _AT_CLOUD, number, 0))

    def _begin(self, number: int, rows: list[int], at_s: float) -> None:
        """These devices get the edge server's model."""
        server = self._servers[number]
        server.in_use[server.made] += len(rows)
        for row in rows:
            server.began[row] = server.made
        devices = self._firsts[number] + np.array(rows, dtype=np.int64)
        for row, seconds in zip(rows, self._durations(self._version).task[devices].tolist(), strict=True):
            later = self._later(self._firsts[number] + row, at_s, up=False)
            heapq.heappush(self._events, (at_s + later + seconds, _READY, number, row))
        if server.buffer.deadline_s is not None:
            heapq.heappush(self._events, (at_s + server.buffer.deadline_s, _DEADLINE, number, server.made))

    def _receive(self, number: int, at_s: float) -> None:
        """The cloud's model arrives at an edge server, at that moment."""
        self._servers[number].version = self._version
        heapq.heappush(self._events, (at_s, _RECEIVED, number, 0))

    def _averaged(self, at_s: float) -> Arrivals:
        """The cloud's average of what has arrived, whose edge servers begin again."""
        taken, self._arrived, self._overdue = sorted(self._arrived), [], False
        backlogs = {number: self._servers[number].finished() for number in taken}
        ways_s = (np.sum(self._relay_s, axis=0) + np.repeat(np.sum(self._link_s, axis=0), self._sizes)) / 2
        self._version += 1
        for number in taken:
            self._receive(number, at_s + self._over_link(number, at_s, up=False))
        self._wait(at_s)
        waiting, self._waiting = self._waiting, {}
        for number, backlog in backlogs.items():
            averaged = dict(zip(backlog.rows.tolist(), backlog.arrives.sum(axis=0).tolist(), strict=True))
            waiting.setdefault(number, Counter()).subtract(averaged)
        uneven = {number: {row: more for row, more in each.items() if more} for number, each in waiting.items()}
        kept = {each.version for number, each in enumerate(self._servers) if number not in backlogs}
        waits = {number: each for number, each in uneven.items() if each}
        return Arrivals(backlogs, tuple(sorted(kept)), at_s, waits, ways_s=ways_s if self._asks else None)

    def _wait(self, at_s: float) -> None:
        if self._cloud.deadline_s is not None:
            heapq.heappush(self._events, (at_s + self._cloud.deadline_s, _CLOUD_DEADLINE, 0, self._version))
