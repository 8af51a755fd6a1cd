"""How a node talks to the nodes below it, wherever these are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class NodeGroup(Protocol):
    """Nodes that are addressed together, by name: how a node talks to the nodes below it.

    Calls go down the tree only, never up: an actor that waits for one that calls it back is a deadlock.
    """

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """Call `method(shared, each[name])` on every named node and wait for all.

        `shared` crosses a host's boundary once, however many of its nodes are called.
        """
        ...


class InProcessNodes:
    """Nodes in this process, called one after another."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        self._nodes = dict(nodes)

    def node(self, name: str) -> Any:
        """A node itself, for whoever is in the same process."""
        return self._nodes[name]

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """Each named node in turn."""
        return {name: getattr(self._nodes[name], method)(shared, item) for name, item in each.items()}
