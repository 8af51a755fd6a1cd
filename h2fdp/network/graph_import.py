"""Checks that a graph of cloud, edge servers and devices is a tree, and translates it into the terms of a file."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from h2fdp.config import Document, empty_document
from h2fdp.config.check import quote
from h2fdp.config.parsing import Node
from h2fdp.errors import Problem, UserError
from h2fdp.network.network import COLUMNS, MOST_TIERS

KINDS = ("cloud", "edge", "device")
ON_NODES = ("trusted", "trust", *COLUMNS)
_OF_WIRES = ("rate_mbps", "power_dbm")
ON_LINKS = (*COLUMNS, "rate_mbps")
ON_GRAPH = ("name", "trust", "radio", "devices")
_Place = tuple[str | int, ...]
_STRUCTURE = ("id", "kind", "key", "source", "target")
_AS_CLOSE_AS = 0.7  # an attribute this like one of ours is a slip of the pen, and not another program's


class GraphNode(NamedTuple):
    """A node: its name, its attributes, and where it was written."""

    name: str
    attributes: Mapping[str, Any]
    where: str

    @property
    def kind(self) -> str:
        """One of KINDS, or empty."""
        kind = self.attributes.get("kind")
        return kind if isinstance(kind, str) and kind in KINDS else ""


class GraphLink(NamedTuple):
    """A link between two nodes, of no direction."""

    ends: tuple[str, str]
    attributes: Mapping[str, Any]
    where: str


class Graph(NamedTuple):
    """A graph as a file gives it. Attributes of the whole have dotted keys, as ``radio.bandwidth_mhz``."""

    path: Path
    attributes: Mapping[str, Any]
    nodes: list[GraphNode]
    links: list[GraphLink]


def tree_document(graph: Graph) -> Document:
    """The graph as a document of the YAML form, whose messages name nodes.

    Raises:
        UserError: with everything that keeps it from being a tree of a cloud, edge servers and devices.
    """
    tree = _Tree(graph)
    if tree.problems:
        raise UserError(tree.problems)
    document = empty_document(str(graph.path), graph.path.parent)
    for key, value in _ours(graph.attributes, ON_GRAPH).items():
        document.set(key, value, str(graph.path))
    assert isinstance(document.root.content, dict)
    cloud = next(node for node in graph.nodes if node.name == tree.cloud)
    if "trust" in cloud.attributes:
        document.labels["cloud",] = f'node "{cloud.name}"'
        document.root.content["cloud"] = Node({"trust": Node(cloud.attributes["trust"], cloud.where)}, cloud.where)
    document.root.content["edges"] = _edges(tree, tree.cloud, ("edges",), document)
    return document


def _edges(tree: _Tree, above: str, path: _Place, document: Document) -> Node:
    """The `edges:` of the cloud or of an edge server, at a path of the document, whose labels name nodes."""
    below = [_edge(tree, server, (*path, at), document) for at, server in enumerate(tree.below(above, "edge"))]
    return Node(below, str(tree.graph.path))


def _edge(tree: _Tree, server: GraphNode, path: _Place, document: Document) -> Node:
    document.labels[path] = f'node "{server.name}"'
    content = {"name": Node(server.name, server.where)} | _nodes(server.attributes, ON_NODES, server.where)
    wire = tree.uplinks[server.name]
    on_wire = {key: value for key, value in wire.attributes.items() if key not in COLUMNS or key in _OF_WIRES}
    if link := _nodes(on_wire, ON_LINKS, wire.where):
        content["link"] = Node(link, wire.where)
    if tree.below(server.name, "edge"):
        content["edges"] = _edges(tree, server.name, (*path, "edges"), document)
        return Node(content, server.where)
    devices = []
    for position, device in enumerate(tree.below(server.name, "device")):
        document.labels[(*path, "devices", position)] = f'node "{device.name}"'
        radio = tree.uplinks[device.name]
        on_air = {key: value for key, value in radio.attributes.items() if key != "rate_mbps"}
        numbers = _nodes(device.attributes, ON_NODES, device.where) | _nodes(on_air, ON_LINKS, radio.where)
        devices.append(Node({"name": Node(device.name, device.where)} | numbers, device.where))
    content["devices"] = Node(devices, server.where)
    return Node(content, server.where)


def _nodes(attributes: Mapping[str, Any], known: tuple[str, ...], where: str) -> dict[str, Node]:
    return {key: Node(value, where) for key, value in _ours(attributes, known).items()}


def _ours(attributes: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The attributes meant for us: known ones and misspelt ones; other programs' (positions, colours) are theirs."""
    return {key: value for key, value in attributes.items() if key not in _STRUCTURE and _is_ours(key, known)}


@lru_cache(maxsize=1024)
def _is_ours(key: str, known: tuple[str, ...]) -> bool:
    return bool(difflib.get_close_matches(key.split(".")[0], known, n=1, cutoff=_AS_CLOSE_AS))


class _Tree:
    """Every node's link to the node above it, and what keeps the graph from being our tree.

    Attributes:
        cloud: the name of the cloud's node.
        uplinks: of each edge server and device, the link to the node above.
        problems: of one sort only: kinds, else links, else the shape of the tree, as each sort causes some of the next.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.cloud = graph, ""
        self.uplinks: dict[str, GraphLink] = {}
        self.problems: list[Problem] = []
        self._nodes: dict[str, GraphNode] = {}
        self._links: dict[str, list[tuple[str, GraphLink]]] = defaultdict(list)  # to which node, by which link
        self._below: dict[str, list[GraphNode]] = defaultdict(list)
        for check in (self._check_kinds, self._check_links, self._check_shape):
            if not self.problems:
                check()

    def below(self, name: str, kind: str) -> list[GraphNode]:
        """The nodes of a kind directly below one, in the order of the nodes."""
        return [node for node in self._below[name] if node.kind == kind]

    def _tell(self, text: str, where: str, name: str = "", key: str = "") -> None:
        self.problems.append(Problem(text, where, f'node "{name}"{key}' if name else ""))

    def _check_kinds(self) -> None:
        names = [node.name for node in self.graph.nodes]
        clouds = [node for node in self.graph.nodes if node.kind == "cloud"]
        expected = ", ".join(KINDS)
        if len(names) > 1 and not any("kind" in node.attributes for node in self.graph.nodes):
            self._tell(f"no node has the attribute `kind`; expected one of {expected} on each", str(self.graph.path))
            return
        for node in self.graph.nodes:
            if node.name in self._nodes:
                first = self._nodes[node.name].where
                self._tell(f"a second node of this name (first at {first})", node.where, node.name)
            elif not node.kind:
                found = quote(node.attributes.get("kind"))
                self._tell(f"expected one of {expected}, found {found}", node.where, node.name, ".kind")
            self._nodes.setdefault(node.name, node)
        for other in clouds[1:]:
            self._tell(f'a second cloud (the first is "{clouds[0].name}")', other.where, other.name)
        if not clouds and not self.problems:
            self._tell("expected one node of kind cloud, found none", str(self.graph.path))
        self.cloud = clouds[0].name if clouds else ""

    def _check_links(self) -> None:
        unlisted = {end: link for link in self.graph.links for end in link.ends if end not in self._nodes}
        for end, link in unlisted.items():
            self._tell("a link leads to this node, which is not in the list of nodes", link.where, end)
        for link in self.graph.links:
            first, second = link.ends
            self._links[first].append((second, link))
            self._links[second].append((first, link))
        for device in (node for node in self._nodes.values() if node.kind == "device" and not unlisted):
            ends = [end for end, _ in self._links[device.name]]
            wrong = next((end for end in ends if self._nodes[end].kind != "edge"), None)
            if not ends:
                self._tell("no link to an edge server", device.where, device.name)
            elif wrong is not None:
                text = f'a device linked to the {self._nodes[wrong].kind} "{wrong}"; expected an edge server'
                self._tell(text, self._links[device.name][0][1].where, device.name)
            elif len(ends) > 1:
                again = "a second link to the same node" if ends[0] == ends[1] else "two parents"
                text = f'{again} ("{ends[0]}" and "{ends[1]}"); expected one'
                self._tell(text, self._links[device.name][1][1].where, device.name)

    def _check_shape(self) -> None:
        """Walk down from the cloud, tier by tier; a server that is met twice closes a cycle."""
        tier, depth = [self.cloud], 0
        while tier and not self.problems:
            upper, tier = tier, []
            for name in upper:
                for end, link in self._links[name]:
                    if link is self.uplinks.get(name):
                        continue
                    if end in self.uplinks or end == self.cloud:
                        self._tell(f'the links form a cycle through "{name}" and "{end}"; expected a tree', link.where)
                        return
                    self.uplinks[end] = link
                    self._below[name].append(self._nodes[end])
                    tier += [end] if self._nodes[end].kind == "edge" else []
            depth += 1
            if tier and depth > MOST_TIERS:
                words = f"expected at most {MOST_TIERS} tiers of edge servers; this one is below them"
                self._tell(words, self._nodes[tier[0]].where, tier[0])
        order = {name: at for at, name in enumerate(self._nodes)}
        for name, below in self._below.items():
            below.sort(key=lambda node: order[node.name])
            if len({node.kind for node in below}) > 1:
                text = "devices and edge servers below it; expected one of both"
                self._tell(text, self._nodes[name].where, name)
        for node in self._nodes.values():
            if node.kind == "edge" and node.name not in self.uplinks and not self.problems:
                text = "no link to the cloud or to an edge server on the way there"
                self._tell(text, node.where, node.name)
