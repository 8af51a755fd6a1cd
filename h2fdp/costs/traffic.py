"""What an interval sends: uploads that arrive, local steps of each device, secure sums, and messages over the wires.

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

over the children that send, so that servers work side by side and the delays of a path add up. To a server that holds
a secure sum of theirs, children send and receive keys and shares besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Self

import numpy as np

from h2fdp.costs.messages import MessageCosts
from h2fdp.network import Topology
from h2fdp.network.devices import Floats, Integers

SumQuantity = Literal[
    "set_up", "others_keys", "others_shares", "unopened", "unmasking", "sent_more", "received_more"
]  # of `SumMessages`


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
        """Those of so many bits each."""
        return cls(key / message, share / message, vector / message)

    def sent(self, parties: int) -> float:
        """Keys and shares that one of so many sends for a sum that is opened."""
        return 2 * self.key + (3 * parties - 2) * self.share

    def keys_and_shares(self, devices: int) -> float:
        """What a device sends and receives for a sum of so many, beside its vector."""
        return 2 * devices * self.key + (5 * devices - 4) * self.share


@dataclass(frozen=True, eq=False)
class SumMessages:
    """What the devices of a subnet do for the secure sums of an interval, one for each segment.

    Attributes:
        begun: (segments, s) whether each device is there when the segment begins.
        sent: (segments, s) whether it sends its vector.
        opened: (segments,) whether the sum is opened.
    """

    sizes: ExchangeSizes
    begun: np.ndarray
    sent: np.ndarray
    opened: np.ndarray

    @classmethod
    def planned(cls, sizes: ExchangeSizes, segments: int, devices: int) -> Self:
        """Those of devices that all do what was planned."""
        everybody = np.ones((segments, devices), dtype=bool)
        return cls(sizes, everybody, everybody, np.ones(segments, dtype=bool))

    def of(self, quantity: SumQuantity) -> np.ndarray:
        """(segments, s) what each device sends or receives of a kind.

        Args:
            quantity: before its local steps it sends keys and shares (`set_up`) and receives those of others
                (`others_keys`, `others_shares`); then it sends vectors, `unopened` where their sum is, and, once a sum
                is opened, a share of each device that began it (`unmasking`). `sent_more` is all that it sends beyond a
                message for each opened upload, `received_more` all that it receives beyond models.
        """
        others = np.maximum(self.begun.sum(axis=1, keepdims=True) - 1, 0)
        opened, sizes = self.sent & self.opened[:, None], self.sizes
        arrays: dict[str, np.ndarray] = {
            "set_up": self.begun * (2 * sizes.key + 2 * others * sizes.share),
            "others_keys": self.begun * 2 * others * sizes.key,
            "others_shares": self.begun * 2 * others * sizes.share,
            "unopened": (self.sent & ~self.opened[:, None]) * sizes.vector,
            "unmasking": opened * (others + 1) * sizes.share,
        }
        arrays["sent_more"] = arrays["set_up"] + opened * (sizes.vector - 1) + arrays["unopened"] + arrays["unmasking"]
        arrays["received_more"] = arrays["others_keys"] + arrays["others_shares"]
        return arrays[quantity]


@dataclass(frozen=True, eq=False)
class Failing:
    """What the devices of a subnet did in an interval in which some of them failed.

    Attributes:
        uploads: (segments, s) whether the upload of each arrived at each aggregation.
        steps: (s,) local steps that each computed, also those whose upload was never made.
    """

    uploads: np.ndarray
    steps: np.ndarray


@dataclass(frozen=True, eq=False)
class Active:
    """The subnets that have active devices and those devices, A and K of them.

    Attributes:
        subnets, sizes: (A,) numbers of the subnets in the network; how many active devices each has.
        firsts: (A,) where each subnet's begin among the K.
        rows: (K,) the devices' rows in the network.
        segments: for each subnet the local steps planned before each aggregation.
        steps: (K,) that each device computed.
        uploads: one array (segments, s) for each subnet: whether each device's upload arrives at each aggregation.
        sums: what each subnet does for secure sums; None where it has none.
    """

    subnets: Integers
    sizes: Integers
    firsts: Integers
    rows: Integers
    segments: Sequence[Sequence[int]]
    steps: Floats
    uploads: Sequence[np.ndarray]
    sums: Sequence[SumMessages | None]

    @property
    def slots(self) -> Floats:
        """(A,) of the interval, in which a device may compute."""
        return np.array([sum(each) for each in self.segments], dtype=np.float64)

    @property
    def local(self) -> Floats:
        """(K,) local aggregations that each device's upload arrives at."""
        return np.concatenate([np.zeros(0), *(each[:-1].sum(axis=0) for each in self.uploads)])

    @property
    def last(self) -> Floats:
        """(K,) 1 where it arrives at the global one."""
        return np.concatenate([np.zeros(0), *(each[-1] for each in self.uploads)])

    def occasions(self) -> Iterator[np.ndarray]:
        """(K,) whether each device's upload arrives at the first aggregation of its subnet, at the second, ..."""
        for number in range(max((len(each) for each in self.uploads), default=0)):
            yield np.concatenate(
                [each[number] if number < len(each) else np.zeros(each.shape[1], dtype=bool) for each in self.uploads]
            )

    @property
    def has_secure_sums(self) -> bool:
        """Whether any of these subnets has."""
        return any(each is not None for each in self.sums)

    @property
    def vector_sizes(self) -> Floats:
        """(K,) messages in a device's upload: 1, or what a vector under masks takes."""
        sizes = [1.0 if each is None else each.sizes.vector for each in self.sums]
        return self.each(np.array(sizes, dtype=np.float64))

    def of_sums(self, quantity: SumQuantity, number: int | None = None) -> Floats:
        """(K,) what each device sends or receives of a kind, see `SumMessages.of`; 0 where there are no secure sums.

        Args:
            number: of the sum, from 0, or -1 for the last one; None for all together.
        """
        sums = [np.zeros(0)]
        for size, each in zip(self.sizes.tolist(), self.sums, strict=True):
            values = np.zeros((0, size)) if each is None else each.of(quantity)
            if number is not None:
                values = values[number : number + 1 or None]
            sums.append(values.sum(axis=0))
        return np.concatenate(sums)

    def totals(self, values: Floats) -> Floats:
        """(A,) the sum over each subnet's active devices of (K,) values."""
        return np.add.reduceat(values, self.firsts)

    def each(self, of_subnets: Floats) -> Floats:
        """(K,) a subnet's value for each of its active devices."""
        return np.repeat(of_subnets, self.sizes)


def active_devices(
    topology: Topology,
    subnets: Sequence[int],
    rows: Sequence[Integers],
    segments: Sequence[Sequence[int]],
    failing: Sequence[Failing | None],
    sums: Sequence[SumMessages | None],
) -> Active:
    """Those of a plan; the arguments are those of `interval_cost`. Subnets without any are left out."""
    assert len(subnets) == len(rows) == len(segments) == len(set(subnets)), "one plan for each subnet"
    busy = [index for index, of_subnet in enumerate(rows) if len(of_subnet)]
    numbers = np.array([subnets[index] for index in busy], dtype=np.int64)
    sizes = np.array([len(rows[index]) for index in busy], dtype=np.int64)
    within = np.concatenate([np.zeros(0, dtype=np.int64), *(rows[index] for index in busy)])
    all_sizes = topology.sizes
    assert ((within >= 0) & (within < np.repeat(all_sizes[numbers], sizes))).all(), "rows are of the subnet"
    starts = np.cumsum(all_sizes) - all_sizes
    uploads, steps = [], [np.zeros(0)]
    for index, size in zip(busy, sizes.tolist(), strict=True):
        some = failing[index]
        everybody = np.broadcast_to(True, (len(segments[index]), size))
        uploads.append(everybody if some is None else some.uploads)
        steps.append(np.full(size, float(sum(segments[index]))) if some is None else some.steps.astype(np.float64))
    return Active(
        subnets=numbers,
        sizes=sizes,
        firsts=np.cumsum(sizes) - sizes,
        rows=np.repeat(starts[numbers], sizes) + within,
        segments=[segments[index] for index in busy],
        steps=np.concatenate(steps),
        uploads=uploads,
        sums=[sums[index] for index in busy],
    )


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


NO_SUMS: Mapping[str | None, ExchangeSizes] = MappingProxyType({})


class Wires:
    """Who has anything to send up, and each access point's clock, over the aggregations of one interval.

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
        began_s: float = 0.0,
        vector: float = 1.0,
        sums: Mapping[str | None, ExchangeSizes] = NO_SUMS,
    ) -> None:
        """Before an interval.

        Args:
            began_s: the moment of the simulated clock at which it begins.
            vector: messages, there and back in the mean, that a relay of a star passes on at once.
            sums: aggregators, or the cloud (None), that hold secure sums of what their children send.
        """
        self._sums = sums
        self._topology, self._began_s, self._vector = topology, began_s, vector
        self._links, self._upper_links = costs.links, costs.upper_links
        names, star = topology.access_points[0], topology.subnets[0].relays is not None
        self._low_fresh = np.zeros(len(names), dtype=bool)
        self._upper_fresh = np.zeros(len(topology.aggregators), dtype=bool)
        self.sent, self.upper_sent = np.zeros(len(names)), np.zeros(len(topology.aggregators))
        self.way_s, self.upper_way_s = self._links.seconds.copy(), self._upper_links.seconds.copy()
        self.paths: list[Floats] = []
        self.clock = np.zeros(len(names))
        low = {name: number for number, name in enumerate(names)}
        upper = {aggregator.name: number for number, aggregator in enumerate(topology.aggregators)}
        below = {node: names if star else topology.children(node) for node in (None, *upper)}
        self._children = {node: (_numbers(low, each), _numbers(upper, each)) for node, each in below.items()}

    def arrive(self, points: np.ndarray) -> None:
        """Uploads of devices have arrived at these access points (numbers)."""
        self._low_fresh[points] = True

    def aggregate(self, height: int, busy: Floats) -> None:
        """An aggregation, after access points were `busy` (P,) seconds since the last one above them."""
        self.clock += busy
        for number in reversed(range(len(self._topology.aggregators))):  # children come after their parents
            name = self._topology.aggregators[number].name
            if self._topology.height(name) <= height:
                below = self._topology.below(name)
                self._gather(name, slice(below.start, below.stop))
                self._upper_fresh[number] |= self._arrived
        if self._topology.height(None) <= height:
            self._gather(None, slice(None))
        low_s = self.way_s if self._topology.subnets[0].relays is None else np.zeros(1)
        self.paths.append(path_seconds(low_s, self.upper_way_s, self._topology, height))

    def _gather(self, node: str | None, below: slice) -> None:
        low, upper = self._children[node]
        low, upper = low[self._low_fresh[low]], upper[self._upper_fresh[upper]]
        start, sent, parties = self.clock[below].max(initial=0.0), 1.0, low.size + upper.size
        up, there = self._over_links(low, upper, start, True)
        down, back = self._over_links(low, upper, start + there, False)
        self.way_s[low], self.upper_way_s[upper] = ((one + other) / 2 for one, other in zip(up, down, strict=True))
        elapsed = there + back
        if parties and node in self._sums:
            sent += self._sums[node].sent(parties)
            elapsed = (2.0 + self._sums[node].keys_and_shares(parties)) * there
        self.clock[below] = start + elapsed
        self.sent[low] += sent
        self.upper_sent[upper] += sent
        self._low_fresh[low], self._upper_fresh[upper] = False, False
        self._arrived = bool(low.size or upper.size)

    def _over_links(self, low: Integers, upper: Integers, ready_s: float, up: bool) -> tuple[list[Floats], float]:
        """Seconds over these links, all of whose messages are ready at once, and those of the slowest."""
        at = self._began_s + ready_s
        seconds = [self._links.of(low, at, up), self._upper_links.of(upper, at, up)]
        return seconds, max(float((seconds[0] * self._vector).max(initial=0.0)), float(seconds[1].max(initial=0.0)))


def _numbers(of: dict[str, int], names: Sequence[str]) -> np.ndarray:
    return np.array([of[name] for name in names if name in of], dtype=np.int64)
