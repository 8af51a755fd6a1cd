"""Graphs and places in the terms of a topology file.

A graph whose nodes are a cloud, edge servers and devices must be a tree. Nodes of one without roles, a backbone, become
edge servers; users with coordinates join the nearest edge server.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from h2fdp.config import Document, empty_document
from h2fdp.config.check import quote
from h2fdp.config.parsing import Node
from h2fdp.errors import Problem, UserError, meant
from h2fdp.network.devices import NEAREST_M, Floats
from h2fdp.network.generators import DISTANCE_RANGE_M
from h2fdp.network.network import COLUMNS, MOST_TIERS
from h2fdp.network.schema import UNLIMITED
from h2fdp.network.templates import DRAWN_DECIMALS

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


class Places(NamedTuple):
    """Points of a file: (n, 2) metres in a plane, or degrees of latitude and longitude; names where there are any."""

    path: Path
    positions: Floats
    on_earth: bool
    names: list[str] | None


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
            text = f"no node has the attribute `kind`; expected one of {expected} on each"
            self._tell(f"{text}, or h2fdp topology import, for a graph without roles", str(self.graph.path))
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


RATE_MBPS = 100.0  # of links whose file states none, as in the paper's networks
EARTH_M = 6_371_008.8  # mean radius (IUGG)
_MOST_NODES = 2_000  # of a graph in which the cloud's place is looked for


class Imported(NamedTuple):
    """The `edges:` of a topology file, and what is to be said about them."""

    edges: list[dict[str, Any]]
    note: str


def from_graph(
    graph: Graph, cloud: str | None = None, edges: Sequence[str] = (), devices: int = 5, rate_mbps: float = RATE_MBPS
) -> Imported:
    """Nodes of a backbone as edge servers under a cloud that sits at one of them.

    A message to the cloud takes the fastest way, one link after the other, so that seconds and joules of the links add
    up: the edge server's link has the rate 1 / sum(1 / rate). At the cloud's own node it is unlimited.

    Args:
        graph: links may state `rate_mbps`, or bits a second as `LinkSpeedRaw`, as in the Internet Topology Zoo.
        cloud: the node; None for that from which a message to all others takes least time in all.
        edges: the nodes that become edge servers; empty for all from which there is a way to the cloud.
        devices: of each, at 10 to 100 m.
        rate_mbps: of links that state none.

    Raises:
        UserError: no such node, nodes that have roles already, or a link without speed.
    """
    import networkx as nx

    path = graph.path
    if any(node.kind for node in graph.nodes):
        raise UserError("the nodes of this graph have roles (kind); use it as a topology as it is", str(path))
    names = _names(graph)
    network: nx.Graph[str] = nx.Graph()
    network.add_nodes_from(names.values())
    for link in graph.links:
        ends = [names[end] for end in link.ends if end in names]
        if len(ends) == 2:
            first, second = ends
            link_rate = _rate_mbps(link.attributes, rate_mbps)
            if not link_rate > 0:
                text = f"the link of {first} and {second}: expected a rate above 0 Mbps; found {link_rate:g}"
                raise UserError(text, str(path))
            seconds = 1 / link_rate  # of a megabit
            known = network.edges[first, second]["seconds"] if network.has_edge(first, second) else seconds
            network.add_edge(first, second, seconds=min(seconds, known))
    asked = [*(("--edges", name) for name in edges), *([] if cloud is None else [("--cloud", cloud)])]
    if unknown := [each for each in asked if each[1] not in network]:
        raise UserError(Problem(_no_such_node(name, network), str(path), option) for option, name in unknown)
    if cloud is None:
        cloud = _middle(network, path)
    away = nx.single_source_dijkstra_path_length(network, cloud, weight="seconds")
    wanted = [name for name in names.values() if not edges or name in edges]
    made = [
        {
            "name": name,
            "link": {"rate_mbps": 1 / away[name] if away[name] else UNLIMITED},
            "devices": {"count": devices, "distance_m": {"uniform": DISTANCE_RANGE_M}},
        }
        for name in wanted
        if name in away
    ]
    lost = [name for name in wanted if name not in away]
    left_out = f"; without a way to it and left out: {', '.join(lost)}" if lost else ""
    return Imported(made, f"the cloud sits at {cloud}{left_out}")


def _no_such_node(name: str, network: Any) -> str:
    return f'expected the name of a node, as {meant(name, network) or ", ".join(list(network)[:3])}; found "{name}"'


def _names(graph: Graph) -> dict[str, str]:
    """Each node's name by its id: its label where no other has it, else with the id."""
    labels = {node.name: " ".join(str(node.attributes.get("label", node.name)).split()) for node in graph.nodes}
    shared = Counter(labels.values())
    return {key: label if label and shared[label] == 1 else f"{label}-{key}" for key, label in labels.items()}


def _rate_mbps(attributes: Mapping[str, Any], default: float) -> float:
    for key, unit in (("rate_mbps", 1.0), ("LinkSpeedRaw", 1e-6)):
        value = attributes.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) * unit
    return default


def _middle(network: Any, path: Path) -> str:
    """The node of the largest part from which all others of it are nearest in all; the first of equal ones."""
    import networkx as nx

    if len(network) > _MOST_NODES:
        raise UserError(f"expected --cloud, as there are more than {_MOST_NODES:,} nodes to choose from", str(path))
    largest = max(nx.connected_components(network), key=len)
    total: dict[str, float] = {
        name: sum(nx.single_source_dijkstra_path_length(network, name, weight="seconds").values())
        for name in network
        if name in largest
    }
    return min(total, key=lambda name: round(total[name], 12))


def from_places(servers: Places, users: Places) -> Imported:
    """Each user under the nearest edge server; edge servers without users are left out.

    Distances are in metres, great circles (haversine) between latitudes and longitudes, and at least 1 m.

    Raises:
        UserError: places of two kinds.
    """
    from sklearn.neighbors import BallTree  # 1 s, for those who place networks

    if servers.on_earth != users.on_earth:
        found, expected = ("lat and lon" if each.on_earth else "x and y" for each in (users, servers))
        raise UserError(f"expected the columns {expected}, as edge servers have; found {found}", f"{users.path}:1")
    at, of = (np.radians(each.positions) if each.on_earth else each.positions for each in (servers, users))
    far, nearest = BallTree(at, metric="haversine" if users.on_earth else "euclidean").query(of)
    metres = np.round(far[:, 0] * (EARTH_M if users.on_earth else 1.0), DRAWN_DECIMALS).clip(min=NEAREST_M)
    order, made = np.argsort(nearest[:, 0], kind="stable"), []
    ends = np.cumsum(np.bincount(nearest[:, 0], minlength=len(at)))
    for number, own in enumerate(np.split(order, ends[:-1])):
        if own.size:
            name = f"edge-{number + 1}" if servers.names is None else servers.names[number]
            made.append({"name": name, "devices": _devices(metres[own].tolist(), users.names, own)})
    empty = len(at) - len(made)
    return Imported(made, f"{empty:,} edge servers without users are left out" if empty else "")


def _devices(metres: list[float], names: list[str] | None, own: np.ndarray) -> Any:
    if names is None:
        return {"count": len(metres), "distance_m": metres}
    return [{"name": names[user], "distance_m": far} for user, far in zip(own.tolist(), metres, strict=True)]
