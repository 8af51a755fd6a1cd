"""Checks that a graph of cloud, edge servers and devices is a tree, and translates it into the terms of a file."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from h2fdp.config import Document, empty_document
from h2fdp.config.check import quote
from h2fdp.config.parsing import Node
from h2fdp.errors import Problem
from h2fdp.topology.hierarchy import MOST_TIERS
from h2fdp.topology.network import COLUMNS

KINDS = ("cloud", "edge", "device")
ON_NODES = ("trusted", "trust", *COLUMNS)
_OF_WIRES = ("rate_mbps", "power_dbm")
ON_LINKS = (*COLUMNS, "rate_mbps")
ON_GRAPH = ("name", "trust", "radio", "compute")
_Place = tuple[str | int, ...]
_AGAIN = "a second link to the same node"
_STRUCTURE = ("id", "kind", "key", "source", "target")
_AS_CLOSE_AS = 0.7  # an attribute this like one of ours is a slip of the pen, and not another program's


@dataclass(frozen=True)
class GraphNode:
    """A node: its name, its attributes, and where it was written."""

    name: str
    attributes: Mapping[str, Any]
    where: str

    @property
    def kind(self) -> str:
        """One of KINDS, or empty."""
        kind = self.attributes.get("kind")
        return kind if isinstance(kind, str) and kind in KINDS else ""


@dataclass(frozen=True)
class GraphLink:
    """A link between two nodes, of no direction."""

    ends: tuple[str, str]
    attributes: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class Graph:
    """A graph as a file gives it. Attributes of the whole have dotted keys, as ``radio.bandwidth_mhz``."""

    path: Path
    attributes: Mapping[str, Any]
    nodes: list[GraphNode]
    links: list[GraphLink]


def tree_document(graph: Graph) -> tuple[Document, list[Problem]]:
    """The graph as a document of the YAML form, whose messages name nodes, and what keeps it from being our tree."""
    tree = _Tree(graph)
    document = empty_document(str(graph.path), graph.path.parent)
    for key, value in _ours(graph.attributes, ON_GRAPH).items():
        document.set(key, value, str(graph.path))
    assert isinstance(document.root.content, dict)
    document.root.content["edges"] = _edges(tree, tree.cloud, ("edges",), document)
    return document, tree.problems


def _edges(tree: _Tree, above: str, path: _Place, document: Document) -> Node:
    """The `edges:` of the cloud or of an edge server, at a path of the document, whose labels name nodes."""
    below = [_edge(tree, server, (*path, at), document) for at, server in enumerate(tree.servers[above])]
    if not below and tree.problems:  # one stands for them, so that an empty list is not one more problem
        below = [_edge(tree, GraphNode("edge", {}, ""), (*path, 0), document)]
    return Node(below, str(tree.graph.path))


def _edge(tree: _Tree, server: GraphNode, path: _Place, document: Document) -> Node:
    document.labels[path] = f'node "{server.name}"'
    content = {"name": Node(server.name, server.where)} | _nodes(server.attributes, ON_NODES, server.where)
    wire = tree.uplink.get(server.name)
    if wire is not None:
        on_wire = {key: value for key, value in wire.attributes.items() if key not in COLUMNS or key in _OF_WIRES}
        link = _nodes(on_wire, ON_LINKS, wire.where)
        if link:
            content["link"] = Node(link, wire.where)
    if tree.servers[server.name]:
        content["edges"] = _edges(tree, server.name, (*path, "edges"), document)
    elif tree.lost_all_below(server.name):
        content["devices"] = Node([Node({}, server.where)], server.where)
    else:
        devices = tree.devices[server.name]
        for position, device in enumerate(devices):
            document.labels[(*path, "devices", position)] = f'node "{device.name}"'
        content["devices"] = Node([_device(device, tree.uplink[device.name]) for device in devices], server.where)
    return Node(content, server.where)


def _device(device: GraphNode, radio: GraphLink) -> Node:
    on_air = {key: value for key, value in radio.attributes.items() if key != "rate_mbps"}
    return Node(
        {"name": Node(device.name, device.where)}
        | _nodes(device.attributes, ON_NODES, device.where)
        | _nodes(on_air, ON_LINKS, radio.where),
        device.where,
    )


def _nodes(attributes: Mapping[str, Any], known: tuple[str, ...], where: str) -> dict[str, Node]:
    return {key: Node(value, where) for key, value in _ours(attributes, known).items()}


def _ours(attributes: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The attributes meant for us: known ones and misspelt ones; other programs' (positions, colours) are theirs."""
    return {key: value for key, value in attributes.items() if key not in _STRUCTURE and _is_ours(key, known)}


@lru_cache(maxsize=1024)
def _is_ours(key: str, known: tuple[str, ...]) -> bool:
    return bool(difflib.get_close_matches(key.split(".")[0], known, n=1, cutoff=_AS_CLOSE_AS))


@dataclass
class _Tree:
    """Parents and children, and every problem of shape; what only follows from another problem is not one.

    Attributes:
        cloud: the name of the cloud's node; empty where there is none.
        servers, devices: the edge servers and the devices below each node, in the order of the nodes.
        uplink: the link of each edge server and device to the node above it.
    """

    graph: Graph
    cloud: str = ""
    servers: dict[str, list[GraphNode]] = field(default_factory=lambda: defaultdict(list))
    devices: dict[str, list[GraphNode]] = field(default_factory=lambda: defaultdict(list))
    uplink: dict[str, GraphLink] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._neighbours: dict[str, set[str]] = defaultdict(set)
        self._unlisted: set[str] = set()
        self._wires: dict[str, dict[str, GraphLink]] = defaultdict(dict)
        for node in self.graph.nodes:
            self._check_node(node)
        self._check_kinds()
        self._check_cloud()
        for link in self.graph.links:
            first, second = link.ends
            self._neighbours[first].add(second)
            self._neighbours[second].add(first)
            self._check_link(link)
        self._hang_servers()
        self._check_orphans()
        self._check_cycle()
        self._check_mixed()

    def of_kind(self, kind: str) -> list[GraphNode]:
        return [node for node in self._nodes.values() if node.kind == kind]

    def lost_all_below(self, server: str) -> bool:
        """Whether all that is below an edge server was left out, each for a problem that is listed already."""
        linked = len(self._neighbours[server]) > (server in self.uplink)
        return bool(self.problems) and not self.devices[server] and (linked or server not in self._nodes)

    def _tell(self, text: str, where: str, name: str, key: str = "") -> None:
        self.problems.append(Problem(text, where, f'node "{name}"' + (f".{key}" if key else "")))

    def _check_node(self, node: GraphNode) -> None:
        if node.name in self._nodes:
            self._tell("a second node of this name", node.where, node.name)
            return
        self._nodes[node.name] = node

    def _check_kinds(self) -> None:
        lacking = self.of_kind("")
        if len(lacking) == len(self._nodes) > 1 and not any("kind" in node.attributes for node in lacking):
            text = f"no node has the attribute `kind`; expected one of {', '.join(KINDS)} on each"
            self.problems.append(Problem(text, str(self.graph.path)))
            return
        for node in lacking:
            found = quote(node.attributes.get("kind"))
            self._tell(f"expected one of {', '.join(KINDS)}, found {found}", node.where, node.name, "kind")

    def _check_cloud(self) -> None:
        clouds = self.of_kind("cloud")
        if not clouds:
            if not self.of_kind(""):  # else the cloud may be a node whose kind was not understood
                self.problems.append(Problem("expected one node of kind cloud, found none", str(self.graph.path)))
            return
        self.cloud = clouds[0].name
        for other in clouds[1:]:
            self._tell(f'a second cloud (the first is "{self.cloud}")', other.where, other.name)

    def _check_link(self, link: GraphLink) -> None:
        """Take a device's link to its edge server, or a wire between servers, of which the cloud is one."""
        unknown = [end for end in link.ends if end not in self._nodes]
        for end in unknown:
            if end not in self._unlisted:
                self._tell("a link leads to this node, which is not in the list of nodes", link.where, end)
            self._unlisted.add(end)
        if unknown:
            return
        kinds = {self._nodes[end].kind: end for end in link.ends}
        first, second = link.ends
        if set(kinds) == {"edge", "device"}:
            self._take_device(kinds["device"], kinds["edge"], link)
        elif set(kinds) in ({"cloud", "edge"}, {"edge"}):
            if second in self._wires[first]:
                child = second if self._nodes[second].kind == "edge" else first
                other = first if child == second else second
                self._tell(f'{_AGAIN} ("{other}" and "{other}"); expected one', link.where, child)
            self._wires[first].setdefault(second, link)
            self._wires[second].setdefault(first, link)
        elif set(kinds) == {"cloud", "device"}:
            self._tell("a device linked to the cloud; expected an edge server between", link.where, kinds["device"])
        elif set(kinds) == {"device"}:
            self._tell(f'a device linked to the device "{second}"; expected an edge server', link.where, first)

    def _take_device(self, device: str, server: str, link: GraphLink) -> None:
        if device not in self.uplink:
            self.uplink[device] = link
            return
        before = next(end for end in self.uplink[device].ends if end != device)
        again = _AGAIN if before == server else "two parents"
        self._tell(f'{again} ("{before}" and "{server}"); expected one', link.where, device)

    def _hang_servers(self) -> None:
        """Give every edge server that has a way to the cloud the node above it, and every device its edge server."""
        tier, depth = [self.cloud], 0
        while tier:
            above = {name: (upper, link) for upper in tier for name, link in self._wires[upper].items()}
            below = [each for each in self.of_kind("edge") if each.name in above and each.name not in self.uplink]
            depth += 1
            if below and depth == MOST_TIERS + 1:
                words = f"expected at most {MOST_TIERS} tiers of edge servers; this one is below them"
                self._tell(words, below[0].where, below[0].name)
            for server in below:
                upper, self.uplink[server.name] = above[server.name]
                if depth <= MOST_TIERS:
                    self.servers[upper].append(server)
            tier = [server.name for server in below]
        self.servers[self.cloud] += [each for each in self.of_kind("edge") if each.name not in self.uplink]
        for device in self.of_kind("device"):
            if device.name in self.uplink:
                first, second = self.uplink[device.name].ends
                self.devices[second if first == device.name else first].append(device)

    def _check_orphans(self) -> None:
        seen: set[str] = set()
        for server in self.of_kind("edge") if self.cloud else []:
            if server.name in self.uplink or server.name in seen:
                continue
            island = self._reached(server.name)
            seen |= island
            if all(name in self._nodes and self._nodes[name].kind in ("edge", "device") for name in island):
                others = sum(self._nodes[name].kind == "edge" for name in island) - 1
                more = f" (other edge servers linked to it: {others})" if others else ""
                text = f"no link to the cloud or to an edge server on the way there{more}"
                self._tell(text, server.where, server.name)
        for device in self.of_kind("device"):
            if not self._neighbours[device.name]:
                self._tell("no link to an edge server", device.where, device.name)

    def _reached(self, name: str) -> set[str]:
        """All nodes that links lead to from a node, itself among them."""
        reached, waiting = {name}, [name]
        while waiting:
            new = self._neighbours[waiting.pop()] - reached
            reached |= new
            waiting += new
        return reached

    def _check_cycle(self) -> None:
        """Of links between servers: a device in a cycle has two parents or a link to a device, a problem by itself."""
        import networkx as nx  # 0.2 s, for those who read graphs

        network = nx.Graph((first, second) for first, others in self._wires.items() for second in others)
        try:
            cycle = [first for first, _ in nx.find_cycle(network)]
        except nx.NetworkXNoCycle:
            return
        shown = " - ".join([*cycle[:8], *(["..."] if len(cycle) > 8 else []), cycle[0]])
        self.problems.append(Problem(f"the links form a cycle: {shown}; expected a tree", str(self.graph.path)))

    def _check_mixed(self) -> None:
        for server in self.of_kind("edge"):
            if self.servers[server.name] and self.devices[server.name]:
                device = self.devices[server.name][0].name
                words = f'devices ("{device}") and edge servers ("{self.servers[server.name][0].name}") below it'
                self._tell(f"{words}; expected one of both", server.where, server.name)
