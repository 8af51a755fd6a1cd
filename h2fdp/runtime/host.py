"""A process that holds nodes: built from the blueprint and a place, called by the node or driver above."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ray

from h2fdp.protocol import InProcessNodes, NodeGroup
from h2fdp.records import PACKAGE
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.cloud_host import CloudNode
from h2fdp.runtime.hardware import arithmetic, kinds_of
from h2fdp.runtime.host_placement import HostSpec
from h2fdp.runtime.local_hosts import inline_nodes, set_arithmetic

Below = Callable[[Blueprint], NodeGroup]


@dataclass(frozen=True)
class HostLocation:
    """Where a host runs.

    Attributes:
        process: its number.
        machine: Ray's node.
        package: the folder of the package that it imported.
        kinds: host -> what it computes with (`arithmetic`), of itself and of the hosts below it.
    """

    process: int
    machine: str
    package: str
    kinds: dict[str, str]


class Host:
    """Holds the nodes of one place. It keeps no state between calls.

    So a lost host is another one built from the same place, and a call that it did not answer is made again: what nodes
    draw is keyed, hence the same. Nodes with state of their own would be handed it in `build`.
    """

    def __init__(self) -> None:
        set_arithmetic()
        self._stack = ExitStack()
        self._nodes: NodeGroup = InProcessNodes({})

    def build(self, blueprint: Blueprint, place: HostSpec, below: Below) -> HostLocation:
        """Build the nodes; `below` makes the nodes of the places below."""
        lower = below(blueprint) if place.below else InProcessNodes({})
        self._nodes = self._built(blueprint, place, lower)
        machine = ray.get_runtime_context().get_node_id()
        return HostLocation(os.getpid(), machine, str(PACKAGE), {place.name: arithmetic(), **kinds_of(lower)})

    def _built(self, blueprint: Blueprint, place: HostSpec, lower: NodeGroup) -> NodeGroup:
        if place.kind == "subnets":
            return self._stack.enter_context(inline_nodes(blueprint, place.numbers, workers=1))
        (name,) = place.nodes
        if place.kind == "device":
            return InProcessNodes({name: blueprint.lone_device(place.numbers[0], place.row)})
        if place.kind == "cloud":
            return InProcessNodes({name: CloudNode(lower)})
        devices = {node: (device.row, device.row + 1) for device in place.below for node in device.nodes}
        return InProcessNodes({name: blueprint.edge_server_above(place.numbers[0], lower, devices)})

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        return self._nodes.call(method, shared, each)
