"""The wires of an interval: which servers send up at each aggregation, and when the last message is there.

An aggregation of height h happens at the highest server up to that height on each way to the cloud; the cloud's is the
highest of all. Every server below it that anything has reached since it last sent, sends one message to the node above
it, from the lowest up, and the result comes back down. With T(v) the time at which server v has what it averages,

    T(v) = max T(child) + 2 max tbar(child)

over the children that send, so that servers work side by side and the delays of a path add up. To a server that holds
a secure sum of theirs, children send and receive keys and shares besides (:mod:`h2fdp.costs.active`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from h2fdp.costs.active import ExchangeSizes
from h2fdp.costs.messages import MessageCosts
from h2fdp.network import Topology
from h2fdp.network.devices import Floats


def beyond_edge(topology: Topology, height: int) -> np.ndarray:
    """(N,) whether an aggregation of this height happens above each lowest edge server, and not at it."""
    if not topology.aggregators:
        return np.full(topology.edges, height > 1)
    return np.array([topology.height(subnet.parent) <= height for subnet in topology.subnets])


def path_seconds(costs: MessageCosts, topology: Topology, height: int) -> Floats:
    """(N,) seconds over the wires from each lowest edge server to where an aggregation of this height happens."""
    seconds = np.where(beyond_edge(topology, height), costs.link_seconds, 0.0)
    for aggregator, of_link in zip(topology.aggregators, costs.upper_seconds.tolist(), strict=True):
        if topology.height(aggregator.parent) <= height:
            below = topology.below(aggregator.name)
            seconds[below.start : below.stop] += of_link
    return seconds


NO_SUMS: Mapping[str | None, ExchangeSizes] = MappingProxyType({})


class Wires:
    """Who has anything to send up, and each access point's clock, over the aggregations of one interval.

    Attributes:
        sent: (N,) messages that each lowest edge server has sent up, keys and shares as parts of one; `upper_sent` (A,)
            each aggregator.
        clock: (P,) seconds at each access point, an edge server but in a star, at the last aggregation above it.
    """

    def __init__(
        self,
        topology: Topology,
        costs: MessageCosts,
        farthest: Floats,
        sums: Mapping[str | None, ExchangeSizes] = NO_SUMS,
    ) -> None:
        """Before an interval.

        Args:
            farthest: (N,) seconds of the longest relay of a subnet's devices, in a star.
            sums: aggregators, or the cloud (None), that hold secure sums of what their children send.
        """
        self._sums = sums
        self._topology = topology
        self._low_seconds, self._upper_seconds = costs.link_seconds + farthest, costs.upper_seconds
        self._low_fresh = np.zeros(topology.edges, dtype=bool)
        self._upper_fresh = np.zeros(len(topology.aggregators), dtype=bool)
        self.sent = np.zeros(topology.edges)
        self.upper_sent = np.zeros(len(topology.aggregators))
        self.clock = np.zeros(len(topology.access_points[1]))
        low = {subnet.name: number for number, subnet in enumerate(topology.subnets)}
        upper = {aggregator.name: number for number, aggregator in enumerate(topology.aggregators)}
        self._children = {
            node: (_numbers(low, topology.children(node)), _numbers(upper, topology.children(node)))
            for node in (None, *upper)
        }

    def arrive(self, subnets: np.ndarray) -> None:
        """Uploads of devices have arrived at the edge servers of these subnets (numbers)."""
        self._low_fresh[subnets] = True

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

    def _gather(self, node: str | None, below: slice) -> None:
        low, upper = self._children[node]
        low, upper = low[self._low_fresh[low]], upper[self._upper_fresh[upper]]
        wire = max(self._low_seconds[low].max(initial=0.0), self._upper_seconds[upper].max(initial=0.0))
        sent, exchanged, parties = 1.0, 2.0, low.size + upper.size
        if parties and node in self._sums:
            sent += self._sums[node].sent(parties)
            exchanged += self._sums[node].keys_and_shares(parties)
        self.clock[below] = self.clock[below].max(initial=0.0) + exchanged * wire
        self.sent[low] += sent
        self.upper_sent[upper] += sent
        self._low_fresh[low], self._upper_fresh[upper] = False, False
        self._arrived = bool(low.size or upper.size)


def _numbers(of: dict[str, int], names: Sequence[str]) -> np.ndarray:
    return np.array([of[name] for name in names if name in of], dtype=np.int64)
