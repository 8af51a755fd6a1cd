"""Which nodes live on which host: a tree of places, each of which becomes one host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from h2fdp.topology import CLOUD, Topology

Kind = Literal["subnets", "edge", "device", "cloud"]


@dataclass(frozen=True)
class HostSpec:
    """One host, and the hosts whose nodes it calls.

    Attributes:
        name: how the host is called in messages and on Ray's dashboard, as `edge:library`.
        kind: whole subnets (edge servers with their devices), or one node alone.
        nodes: names of the nodes that are called on it.
        numbers: of the subnets that it holds, or that its node belongs to.
        row: of the device within its subnet, where it holds one alone.
        below: the places of the nodes that its node calls.
    """

    name: str
    kind: Kind
    nodes: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    row: int = 0
    below: tuple[HostSpec, ...] = ()

    def all(self) -> Iterator[HostSpec]:
        """This place and every one below it."""
        yield self
        for place in self.below:
            yield from place.all()


def packed(sizes: np.ndarray, hosts: int) -> list[list[int]]:
    """Whole subnets together, neighbours on one host, hosts with about equally many devices.

    Args:
        sizes: (N,) devices of each subnet.
        hosts: at most that many are used; none is left empty.

    >>> packed(np.array([5, 5, 5, 5]), hosts=2)
    [[0, 1], [2, 3]]
    """
    middle = np.cumsum(sizes) - sizes / 2
    owner = np.minimum((middle * hosts / sizes.sum()).astype(int), hosts - 1)
    return [np.flatnonzero(owner == host).tolist() for host in np.unique(owner)]


def _subnets(topology: Topology, name: str, numbers: list[int]) -> HostSpec:
    nodes = tuple(topology.subnets[number].name for number in numbers)
    return HostSpec(name, "subnets", nodes, tuple(numbers))


def _packed_places(topology: Topology, hosts: int) -> list[HostSpec]:
    parts = packed(topology.sizes, hosts)
    return [_subnets(topology, f"host:{at}", numbers) for at, numbers in enumerate(parts)]


def _place_for_each_subnet(topology: Topology, hosts: int) -> list[HostSpec]:
    return [_subnets(topology, f"edge:{subnet.name}", [at]) for at, subnet in enumerate(topology.subnets)]


def _place_for_each_node(topology: Topology, hosts: int) -> list[HostSpec]:
    edges = []
    for number, subnet in enumerate(topology.subnets):
        devices = tuple(
            HostSpec(f"device:{name}", "device", (name,), (number,), row)
            for row, name in enumerate(subnet.device_names())
        )
        edges.append(HostSpec(f"edge:{subnet.name}", "edge", (subnet.name,), (number,), below=devices))
    return [HostSpec("cloud", "cloud", (CLOUD,), below=tuple(edges))]


PLACEMENTS: dict[str, Callable[[Topology, int], list[HostSpec]]] = {
    "packed": _packed_places,
    "subnet": _place_for_each_subnet,
    "entity": _place_for_each_node,
}


def smallest_number_of_hosts(placement: str, topology: Topology) -> int:
    """How many hosts a placement has when `hosts` is 1: all of them, where the topology says how many."""
    if placement == "subnet":
        return topology.edges
    if placement == "entity":
        return 1 + topology.edges + topology.devices
    return sum(1 for place in PLACEMENTS[placement](topology, 1) for _ in place.all())
