"""Prices of a network's messages: of each subnet for problem P, of its turn where edge servers take turns.

Energy and delay of an interval (H2FDP, Sec. 11), as `costs.interval_cost` adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from h2fdp.costs.messages import MessageCosts
from h2fdp.costs.traffic import ExchangeSizes, beyond_edge, path_seconds
from h2fdp.network import Topology
from h2fdp.network.devices import Floats, Integers


@dataclass(frozen=True)
class ControlledNetwork:
    """The network as controllers see it.

    Attributes:
        topology: the tree of N subnets.
        limits: (N,) the most devices of each that may take part.
        trusted: (N,) 1 where one noise covers the sum, 0 where each upload has its own.
        exchanges: (N,) what devices exchange for secure sums; None where they have none.
    """

    topology: Topology
    limits: Integers
    trusted: Floats
    exchanges: Sequence[ExchangeSizes | None]

    @property
    def names(self) -> list[str]:
        """Names of the edge servers."""
        return [subnet.name for subnet in self.topology.subnets]

    @property
    def sizes(self) -> Integers:
        """(N,) s_c."""
        return self.topology.sizes

    def of_exchanges(self, quantity: Callable[[ExchangeSizes], float]) -> Floats:
        """(N,) a quantity of what devices exchange for secure sums; 0 where they have none."""
        return np.array([0.0 if each is None else quantity(each) for each in self.exchanges])

    @property
    def upper_tiers(self) -> range:
        """Each height from 2 up to the tier below the cloud."""
        return range(2, self.topology.depth + 1)

    def means(self, of_devices: Floats) -> Floats:
        """(N,) each subnet's mean of (I,) values."""
        return np.add.reduceat(of_devices, self.topology.firsts) / self.sizes


@dataclass(frozen=True)
class Prices:
    """Prices of messages in the coming interval, (N,) each, means over a subnet's devices.

    Attributes:
        local_joules, local_seconds: of one device at a local aggregation.
        global_joules, global_seconds: of one device at a global aggregation; the seconds there and back, edge-cloud
            link included (Sec. 11).
        link_joules: of the subnet's own message to the cloud, its part of all wires on the way.
        step_joules: of one local step of one device, a single number.
        upper_seconds: (D - 1, N) of one device, there and back, at a local aggregation of height 2 .. D.
        upper_joules: (D - 1, N) of the wires that such an aggregation uses, the subnet's part.
        pair_joules, pair_seconds: of one device for every device in its secure sum, at each aggregation.
    """

    local_joules: Floats
    local_seconds: Floats
    global_joules: Floats
    global_seconds: Floats
    link_joules: Floats
    step_joules: float
    upper_seconds: Floats
    upper_joules: Floats
    pair_joules: Floats
    pair_seconds: Floats

    def pairs(self, of_joules: float, of_seconds: float) -> Floats:
        """(N,) joules and seconds of each pair of devices at one aggregation, weighed by these."""
        return np.asarray(of_joules * self.pair_joules + of_seconds * self.pair_seconds)

    def seconds(self, local: int, upper: Integers) -> Floats:
        """(N,) of one device in an interval of `local` local aggregations, of which `upper` (D - 1,) are higher."""
        at_edge = self.global_seconds + (local - int(upper.sum())) * self.local_seconds
        return np.asarray(at_edge + upper @ self.upper_seconds)

    def wired_joules(self, upper: Integers) -> Floats:
        """(N,) of each subnet's wires in an interval of these higher local aggregations."""
        return np.asarray(self.link_joules + upper @ self.upper_joules)


def prices(network: ControlledNetwork, costs: MessageCosts, step_joules: float) -> Prices:
    """The costs of messages that P needs (Sec. 11): means over each subnet's devices, and its part of the wires.

    Where aggregators stand between edge servers and the cloud, a message passes all wires on its way. The seconds of
    these add up; the energy of a wire that several subnets have in common is counted once, in equal parts.
    """
    joules, seconds, top = network.means(costs.joules), network.means(costs.seconds), network.topology.height(None)
    down, sooner = network.means(costs.down_seconds), network.means(costs.sooner)
    # A device of s sends 2 k + (3 s - 2) h more than a message of its vector, and receives 2 (s - 1) (k + h).
    sent = network.of_exchanges(lambda sizes: 2 * sizes.key - 2 * sizes.share + sizes.vector - 1)
    passed = network.of_exchanges(lambda sizes: -4 * sizes.share + sizes.vector - 1)
    received = network.of_exchanges(lambda sizes: 2 * sizes.key + 2 * sizes.share)
    more, ways = passed * seconds + received * sooner, 2 * _path_seconds(network, costs, top)
    return Prices(
        local_joules=joules + sent * joules,
        local_seconds=seconds + more,
        global_joules=joules + sent * joules + network.means(costs.relay_joules),
        global_seconds=seconds + down + 2 * network.means(costs.relay_seconds) + ways + more,
        link_joules=_wire_joules(network, costs, top),
        step_joules=step_joules,
        upper_seconds=_upper_seconds(network, costs, seconds, down) + more,
        upper_joules=_upper_wire_joules(network, costs),
        pair_joules=network.of_exchanges(lambda sizes: 3 * sizes.share) * joules,
        pair_seconds=network.of_exchanges(lambda sizes: 2 * sizes.key + 5 * sizes.share) * seconds - received * sooner,
    )


def _upper_seconds(network: ControlledNetwork, costs: MessageCosts, seconds: Floats, down: Floats) -> Floats:
    """(D - 1, N) of one device, there and back, at a local aggregation of each height from 2 on."""
    tree = network.topology
    rows = [
        np.where(beyond_edge(tree, height), seconds + down + 2 * _path_seconds(network, costs, height), seconds)
        for height in network.upper_tiers
    ]
    return np.array(rows).reshape(len(rows), len(seconds))


def _path_seconds(network: ControlledNetwork, costs: MessageCosts, height: int) -> Floats:
    return path_seconds(costs.link_seconds, costs.upper_links.seconds, network.topology, height)


def _wire_joules(network: ControlledNetwork, costs: MessageCosts, height: int) -> Floats:
    """(N,) each subnet's part of the wires that an aggregation of this height uses."""
    tree = network.topology
    joules = np.where(beyond_edge(tree, height), costs.link_joules, 0.0)
    for aggregator, of_wire in zip(tree.aggregators, costs.upper_links.joules.tolist(), strict=True):
        if tree.height(aggregator.parent) <= height:
            below = tree.below(aggregator.name)
            joules[below.start : below.stop] += of_wire / len(below)
    return joules


def _upper_wire_joules(network: ControlledNetwork, costs: MessageCosts) -> Floats:
    """(D - 1, N) each subnet's part of the wires that a local aggregation of each height from 2 on uses."""
    rows = [_wire_joules(network, costs, height) for height in network.upper_tiers]
    return np.array(rows).reshape(len(rows), len(network.sizes))


def costs_of_turns(
    network: ControlledNetwork,
    costs: MessageCosts,
    step_joules: Floats | float,
    tau: int,
    local: Integers,
    upper: Integers,
) -> tuple[Floats, Floats]:
    """(N,) joules and (N,) seconds of each edge server's turn, an interval of tau slots in which all its devices take
    part; wires that several have in common in equal parts.

    Args:
        local: (N,) local aggregations of each subnet.
        upper: (D - 1,) how many of these are of height 2 .. D.
    """
    sizes, joules, seconds, top = network.sizes, costs.joules, costs.seconds, network.topology.height(None)

    def of_exchanges(quantity: Callable[[ExchangeSizes], float]) -> Floats:
        return np.repeat(network.of_exchanges(quantity), sizes)

    sent = of_exchanges(lambda each: 2 * each.key - 2 * each.share + each.vector - 1)
    more = of_exchanges(lambda each: -4 * each.share + each.vector - 1) * seconds
    received = of_exchanges(lambda each: 2 * each.key + 2 * each.share)  # for each other device
    more = more + received * costs.sooner
    shares = of_exchanges(lambda each: 3 * each.share)
    exchanged = of_exchanges(lambda each: 2 * each.key + 5 * each.share)
    aggregations = np.repeat(local, sizes)
    uploads, on_air = aggregations + 1, seconds + costs.down_seconds
    delay = on_air + 2 * costs.relay_seconds + 2 * np.repeat(_path_seconds(network, costs, top), sizes) + more
    delay = delay + (aggregations - int(upper.sum())) * (seconds + more)
    for height, times in zip(network.upper_tiers, upper.tolist(), strict=True):
        on_the_way = on_air + 2 * np.repeat(_path_seconds(network, costs, height), sizes)
        beyond = np.repeat(beyond_edge(network.topology, height), sizes)
        delay = delay + times * (np.where(beyond, on_the_way, seconds) + more)
    pairs, firsts = np.repeat(sizes, sizes), network.topology.firsts
    energy = (
        uploads * (1 + sent) * joules + costs.relay_joules + tau * step_joules + pairs * (uploads * shares * joules)
    )
    delay = delay + pairs * (uploads * exchanged * seconds - uploads * received * costs.sooner)
    wires = _wire_joules(network, costs, top) + upper @ _upper_wire_joules(network, costs)
    return np.add.reduceat(energy, firsts) + wires, np.add.reduceat(delay, firsts)
