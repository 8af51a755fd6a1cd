"""The traffic of an interval: uploads that arrive, local steps of devices, secure sums, and messages over the wires.

What secure aggregation adds to an interval's messages (Bonawitz et al. 2017, with an honest-but-curious server).

A sum that n devices begin, a_K and a_S being the bits of a public key and of a share:

1. each sends two public keys and receives those of the n - 1 others, before its local steps;
2. each sends an encrypted pair of shares for every other device and receives as many;
3. after its local steps it sends its vector under masks;
4. if enough of them did, each sends one share for each of the n, by which the masks of the sum are removed.

Together 2 n a_K + (5 n - 4) a_S bits sent and received by a device, and its vector (Bonawitz et al., Sec. 7.1). Masks
serve once: the next sum begins anew. Who vanishes during its local steps has paid for 1 and 2, and the uploads to a sum
that is not opened for 3. Everything is counted in messages, the Q M bits of a model.

An aggregation of height h happens at the highest server up to that height on each way to the cloud; the cloud's is the
highest of all. Every server below it that anything has reached since it last sent, sends one message to the node above
it, from the lowest up, and the result comes back down. With T(v) the time at which server v has what it averages,

    T(v) = max T(child) + 2 max tbar(child)

over the children that send, so that servers work side by side and the delays of a path add up. With a server that makes
a secure sum of their vectors, children exchange keys and shares, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, Self

import numpy as np

from h2fdp.costs.messages import MessageCosts
from h2fdp.network import Topology
from h2fdp.network.devices import Floats, Integers

SumQuantity = Literal[
    "set_up", "others_keys", "others_shares", "unopened", "unmasking", "sent_more", "received_more"
]  # see `Tasks.exchanged`


@dataclass(frozen=True)
class ExchangeSizes:
    """Sizes in messages: of a public key, of a share, and of a vector under masks.

    >>> sizes = ExchangeSizes.of_bits(key=256, share=256, vector=2**20 * 26, message=2**20 * 16)
    >>> n = 1024
    >>> round(sizes.vector + 2 * n * sizes.key + (5 * n - 4) * sizes.share, 2)  # Bonawitz et al., Sec. 1: 1.73
    1.73
    """

    key: float
    share: float
    vector: float

    @classmethod
    def of_bits(cls, *, key: int, share: int, vector: int, message: int) -> Self:
        """The sizes of keys, shares and vectors of so many bits."""
        return cls(key / message, share / message, vector / message)

    def sent(self, parties: int) -> float:
        """Keys and shares that one of so many sends for a sum that is opened."""
        return 2 * self.key + (3 * parties - 2) * self.share

    def keys_and_shares(self, devices: int) -> float:
        """The keys and shares that a device sends and receives for a sum of so many, without its vector."""
        return 2 * devices * self.key + (5 * devices - 4) * self.share


@dataclass(frozen=True, eq=False)
class Tasks:
    """The work of a subnet's devices in an interval: columns have a place for each device, matrices a row for each
    aggregation.

    Attributes:
        rows: (s,) of the devices that take part, within the subnet, ascending.
        segments: local steps that are planned before each aggregation; the last aggregation is the global one.
        steps: (segments, s) local steps behind each device's upload; 0 where none is averaged.
        lost: (s,) local steps that come to nothing: done before dropping out, or behind uploads that are not averaged.
        whole: all do what was planned.
        masked: devices upload under secure aggregation.
        unopened: (segments, s) uploads that arrive at a secure sum that is not opened; None for none.
        there: (segments, s) whether each device is there when a segment begins; None for all.
        idle: (s,) whether each sends what it does not compute; None where none does.
        always: the edge server sends its average up, though nothing may arrive.
    """

    rows: Integers
    segments: tuple[int, ...]
    steps: Integers
    lost: Integers
    whole: bool = False
    masked: bool = False
    unopened: np.ndarray | None = None
    there: np.ndarray | None = None
    idle: np.ndarray | None = None
    always: bool = False

    @classmethod
    def planned(cls, rows: Integers, segments: Sequence[int], masked: bool = False) -> Self:
        """The tasks of devices that all do what was planned; read-only."""
        steps, _, none = _of_all(tuple(segments), len(rows))
        return cls(rows, tuple(segments), steps, none, whole=True, masked=masked)

    def of(self, some: np.ndarray) -> Self:
        """The tasks of some of these devices (s,), where none fails."""
        rows, steps = self.rows[some], self.steps[:, some]
        return replace(self, rows=rows, steps=steps, lost=self.lost[some])

    @cached_property
    def uploads(self) -> np.ndarray:
        """(segments, s) whether the upload of each is averaged at each aggregation."""
        return _of_all(self.segments, len(self.rows))[1] if self.whole else self.steps > 0

    @property
    def arriving(self) -> Integers:
        """Rows of the devices of which anything is averaged."""
        return self.rows if self.whole else self.rows[self.uploads.any(axis=0)]

    @property
    def releasing(self) -> np.ndarray:
        """(segments,) whether anything is averaged at each aggregation."""
        return np.asarray(self.uploads.any(axis=1))

    @property
    def computed(self) -> Integers:
        """(s,) local steps that each device does, in vain or not."""
        done: Integers = self.steps.sum(axis=0) + self.lost
        return done if self.idle is None else np.where(self.idle, 0, done)

    def drawn(self, came: np.ndarray, cover: bool) -> Self:
        """The tasks where these devices (s,) take part; the others compute nothing, and send nothing but as cover."""
        if cover:
            return replace(self, idle=~came)
        there = np.broadcast_to(came if self.there is None else self.there & came, self.steps.shape)
        kept, lost, always = self.steps * came, self.lost * came, bool(self.arriving.size)
        return replace(self, steps=kept, lost=lost, whole=False, there=there, always=always)

    def opening(self, opened: np.ndarray) -> Self:
        """The tasks where some sums are not opened, whatever arrives: work of these segments comes to nothing.

        Args:
            opened: (segments,) whether each is.
        """
        kept = self.steps * opened[:, None]
        lost, unopened = self.lost + (self.steps - kept).sum(axis=0), self.uploads & ~opened[:, None]
        return replace(self, steps=kept, lost=lost, whole=False, unopened=unopened)

    def part(self, first: int, stop: int) -> Self:
        """The tasks of the segments first .. stop - 1; `lost` is of all."""
        unopened, there = (None if each is None else each[first:stop] for each in (self.unopened, self.there))
        kept = self.segments[first:stop], self.steps[first:stop]
        return replace(self, segments=kept[0], steps=kept[1], unopened=unopened, there=there)

    def exchanged(self, quantity: SumQuantity, sizes: ExchangeSizes) -> np.ndarray:
        """(segments, s) what each device sends or receives of a kind for secure sums, one for each segment.

        Args:
            quantity: before its local steps it sends keys and shares (`set_up`) and receives those of others
                (`others_keys`, `others_shares`); then it sends vectors, `unopened` where their sum is, and, once a sum
                is opened, a share of each device that began it (`unmasking`). `sent_more` is all that it sends beyond a
                message for each opened upload, `received_more` all that it receives beyond models.
        """
        opened, none = self.uploads, np.zeros(self.steps.shape, dtype=bool)
        begun, unopened = ~none if self.there is None else self.there, none if self.unopened is None else self.unopened
        others = np.maximum(begun.sum(axis=1, keepdims=True) - 1, 0)
        arrays: dict[str, np.ndarray] = {
            "set_up": begun * (2 * sizes.key + 2 * others * sizes.share),
            "others_keys": begun * 2 * others * sizes.key,
            "others_shares": begun * 2 * others * sizes.share,
            "unopened": unopened * sizes.vector,
            "unmasking": opened * (others + 1) * sizes.share,
        }
        arrays["sent_more"] = arrays["set_up"] + opened * (sizes.vector - 1) + arrays["unopened"] + arrays["unmasking"]
        arrays["received_more"] = arrays["others_keys"] + arrays["others_shares"]
        return arrays[quantity]


@lru_cache(maxsize=256)  # networks have thousands of subnets alike in this
def _of_all(segments: tuple[int, ...], devices: int) -> tuple[Integers, np.ndarray, Integers]:
    """The steps (segments, s), uploads (segments, s) and lost steps (s,) of devices without faults; read-only."""
    shape = len(segments), devices
    steps = np.broadcast_to(np.array(segments, dtype=np.int64)[:, None], shape)
    return steps, np.broadcast_to(True, shape), np.broadcast_to(np.int64(0), devices)


@dataclass(frozen=True, eq=False)
class Active:
    """The devices that have tasks, K of them in A subnets, over the whole network.

    Attributes:
        subnets, sizes: (A,) numbers of the subnets in the network; how many active devices each has.
        firsts: (A,) where each subnet's begin among the K.
        rows: (K,) the devices' rows in the network.
        tasks: of each subnet.
        sums: of what devices exchange for secure sums; None where nothing is.
    """

    subnets: Integers
    sizes: Integers
    firsts: Integers
    rows: Integers
    tasks: Sequence[Tasks]
    sums: ExchangeSizes | None

    @classmethod
    def of(cls, topology: Topology, tasks: Mapping[int, Tasks], sums: ExchangeSizes | None) -> Self:
        """The active devices of the subnets with these numbers; subnets without any are left out."""
        busy = {number: each for number, each in tasks.items() if len(each.rows)}
        numbers = np.array(list(busy), dtype=np.int64)
        sizes = np.array([len(each.rows) for each in busy.values()], dtype=np.int64)
        within = np.concatenate([np.zeros(0, dtype=np.int64), *(each.rows for each in busy.values())])
        assert ((within >= 0) & (within < np.repeat(topology.sizes[numbers], sizes))).all(), "rows are of the subnet"
        # Signals that add up in the air are not masked.
        masked = topology.radio.truncation is None and any(each.masked for each in busy.values())
        return cls(
            subnets=numbers,
            sizes=sizes,
            firsts=np.cumsum(sizes) - sizes,
            rows=np.repeat(topology.firsts[numbers], sizes) + within,
            tasks=list(busy.values()),
            sums=sums if masked else None,
        )

    @property
    def slots(self) -> Floats:
        """(A,) of the interval, in which a device may compute."""
        return np.array([sum(each.segments) for each in self.tasks], dtype=np.float64)

    @property
    def aggregations(self) -> Floats:
        """(A,) that are planned for each subnet."""
        return np.array([len(each.segments) for each in self.tasks], dtype=np.float64)

    def column(self, of: Callable[[Tasks], np.ndarray]) -> Floats:
        """(K,) what tasks say (s,) of their devices, one subnet after another."""
        return np.concatenate([np.zeros(0), *map(of, self.tasks)])

    @property
    def steps(self) -> Floats:
        """(K,) that each device computes."""
        return self.column(lambda each: each.computed)

    @property
    def local(self) -> Floats:
        """(K,) local aggregations that each device's upload arrives at."""
        return self.column(lambda each: each.uploads[:-1].sum(axis=0))

    @property
    def last(self) -> Floats:
        """(K,) 1 where it arrives at the global one."""
        return self.column(lambda each: each.uploads[-1])

    def occasions(self) -> Iterator[np.ndarray]:
        """(K,) whether each device's upload arrives at the first aggregation of its subnet, at the second, ..."""
        uploads = [each.uploads for each in self.tasks]
        for number in range(max((len(each) for each in uploads), default=0)):
            yield np.concatenate(
                [each[number] if number < len(each) else np.zeros(each.shape[1], dtype=bool) for each in uploads]
            )

    @property
    def vector_sizes(self) -> Floats:
        """(K,) messages in a device's upload: 1, or what a vector under masks takes."""
        vector = 1.0 if self.sums is None else self.sums.vector
        return self.each(np.array([vector if each.masked else 1.0 for each in self.tasks], dtype=np.float64))

    def of_sums(self, quantity: SumQuantity, number: int | None = None) -> Floats:
        """(K,) what each device sends or receives of a kind, see `Tasks.exchanged`; 0 where there are no secure sums.

        Args:
            number: of the sum, from 0, or -1 for the last one; None for all together.
        """

        def exchanged(each: Tasks) -> np.ndarray:
            if self.sums is None or not each.masked:
                return np.zeros(len(each.rows))
            values = each.exchanged(quantity, self.sums)
            return np.asarray((values if number is None else values[number : number + 1 or None]).sum(axis=0))

        return self.column(exchanged)

    def totals(self, values: Floats) -> Floats:
        """(A,) the sum over each subnet's active devices of (K,) values."""
        return np.add.reduceat(values, self.firsts)

    def each(self, of_subnets: Floats) -> Floats:
        """(K,) a subnet's value for each of its active devices."""
        return np.repeat(of_subnets, self.sizes)


def beyond_edge(topology: Topology, height: int) -> np.ndarray:
    """(N,) whether an aggregation of this height happens above each lowest edge server, and not at it."""
    if not topology.aggregators:
        return np.full(topology.edges, height > 1)
    return np.array([topology.height(subnet.parent) <= height for subnet in topology.subnets])


def path_seconds(low_s: Floats, upper_s: Floats, topology: Topology, height: int) -> Floats:
    """(N,) seconds over the links from each lowest edge server to where an aggregation of this height happens.

    Args:
        low_s, upper_s: (N,) and (A,) of each link.
    """
    seconds = np.where(beyond_edge(topology, height), low_s, 0.0)
    for aggregator, of_link in zip(topology.aggregators, upper_s.tolist(), strict=True):
        if topology.height(aggregator.parent) <= height:
            below = topology.below(aggregator.name)
            seconds[below.start : below.stop] += of_link
    return seconds


class Wires:
    """The nodes that have anything to send up, and each access point's clock, over one interval's aggregations.

    Access points send: the lowest edge servers, or the relays of a star.

    Attributes:
        sent: (P,) messages that each access point has sent up, keys and shares as parts of one; `upper_sent` (A,) each
            aggregator.
        way_s: (P,) half the seconds there and back of each one's last message over its link; `upper_way_s` (A,).
        paths: for each aggregation (N,) half of those from each lowest edge server to where it happened.
        clock: (P,) seconds at each access point at the last aggregation above it.
    """

    def __init__(
        self,
        topology: Topology,
        costs: MessageCosts,
        began_s: float,
        vector: float,
        sums: Mapping[str | None, ExchangeSizes],
    ) -> None:
        """The wires before an interval.

        Args:
            began_s: the moment of the simulated clock at which it begins.
            vector: messages, there and back in the mean, that a relay of a star passes on at once.
            sums: aggregators, or the cloud (None), that hold secure sums of what their children send.
        """
        self._sums = sums
        self._topology, self._began_s, self._vector = topology, began_s, vector
        self._links, self._upper_links = costs.links, costs.upper_links
        names, star = topology.access_points[0], topology.subnets[0].relays is not None
        nodes, self._points = [*names, *(each.name for each in topology.aggregators)], len(names)
        self._fresh, self._sent = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes))
        self._way_s = np.concatenate([self._links.seconds, self._upper_links.seconds])
        self.sent, self.upper_sent = np.split(self._sent, [len(names)])
        self.way_s, self.upper_way_s = np.split(self._way_s, [len(names)])
        self.paths: list[Floats] = []
        self.clock = np.zeros(len(names))
        numbers = {name: number for number, name in enumerate(nodes)}
        below = {node: names if star else topology.children(node) for node in (None, *nodes[len(names) :])}
        self._children = {
            node: np.array(sorted(numbers[name] for name in each), dtype=np.int64) for node, each in below.items()
        }

    def arrive(self, points: np.ndarray) -> None:
        """Uploads of devices have arrived at these access points (numbers)."""
        self._fresh[points] = True

    def aggregate(self, height: int, busy: Floats) -> None:
        """An aggregation, after access points were `busy` (P,) seconds since the last one above them."""
        self.clock += busy
        for number in reversed(range(len(self._topology.aggregators))):  # children come after their parents
            name = self._topology.aggregators[number].name
            if self._topology.height(name) <= height:
                below = self._topology.below(name)
                self._fresh[self._points + number] |= self._gather(name, slice(below.start, below.stop))
        if self._topology.height(None) <= height:
            self._gather(None, slice(None))
        low_s = self.way_s if self._topology.subnets[0].relays is None else np.zeros(1)
        self.paths.append(path_seconds(low_s, self.upper_way_s, self._topology, height))

    def _gather(self, node: str | None, below: slice) -> bool:
        """The messages of the node's children, if any has something to send; whether one has."""
        numbers = self._children[node][self._fresh[self._children[node]]]
        start, sent, parties = self.clock[below].max(initial=0.0), 1.0, numbers.size
        up, there = self._over_links(numbers, start, True)
        down, back = self._over_links(numbers, start + there, False)
        self._way_s[numbers] = (up + down) / 2
        elapsed = there + back
        if parties and node in self._sums:
            sent += self._sums[node].sent(parties)
            elapsed = (2.0 + self._sums[node].keys_and_shares(parties)) * there
        self.clock[below] = start + elapsed
        self._sent[numbers] += sent
        self._fresh[numbers] = False
        return parties > 0

    def _over_links(self, numbers: Integers, ready_s: float, up: bool) -> tuple[Floats, float]:
        """Seconds over these nodes' links, all of whose messages are ready at once, and those of the slowest."""
        at, low = self._began_s + ready_s, numbers < self._points
        below = self._links.of(numbers[low], at, up)
        above = self._upper_links.of(numbers[~low] - self._points, at, up)
        longest = np.concatenate([below * self._vector, above]).max(initial=0.0)
        return np.concatenate([below, above]), float(longest)
