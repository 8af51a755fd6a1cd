"""Graphs in the terms of a topology file, read by networkx: GraphML, GML, node-link JSON, or a graph of Python.

A graph whose nodes are a cloud, edge servers and devices must be a tree. Nodes of one without roles, a backbone, become
edge servers.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import ParseError, fromstring

import numpy as np

from h2fdp.config import Document, empty_document
from h2fdp.config.check import quote
from h2fdp.config.parsing import read_text
from h2fdp.errors import Problem, UserError, meant
from h2fdp.network.generators import DISTANCE_RANGE_M
from h2fdp.network.links import UNLIMITED
from h2fdp.network.network import COLUMNS, MOST_TIERS
from h2fdp.network.places import value_of
from h2fdp.network.schema import PARTS
from h2fdp.wording import counted

if TYPE_CHECKING:
    import networkx as nx

KINDS = ("cloud", "edge", "device")
_TRUST = ("trusted", "trust")
_ON_NODES = (*_TRUST, *COLUMNS)
_NO_TRUST: tuple[Any, ...] = (False, "untrusted")  # of a device: as a default of all nodes says, and as every device is
_OF_LINKS = ("link", "rate_mbps", "delay_s", "windows")
_ON_WIRES = (*_OF_LINKS, "power_dbm")
_ON_GRAPH = ("name", "trust", "radio", "devices", "cloud")
_STRUCTURE = ("id", "kind", "key", "source", "target")
_AS_CLOSE_AS = 0.7  # an attribute this like one of ours is a slip of the pen, and not another program's
_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"  # before the name of an element
_NO_ROLES = (
    "no node has the attribute `kind`; expected one of cloud, edge, device on each, or h2fdp topology import, for a "
    "graph without roles (in Python h2fdp.network.imported)"
)


class Graph(NamedTuple):
    """A graph whose nodes have texts as names, and where it was read. Links have no direction, and may be parallel.

    Attributes of the whole have dotted keys, as ``radio.bandwidth_mhz``.
    """

    graph: nx.MultiGraph[str]
    where: str
    folder: Path

    @property
    def kinds(self) -> dict[str, Any]:
        """The kind that each node states."""
        return {name: values.get("kind") for name, values in self.graph.nodes(data=True)}

    @property
    def has_roles(self) -> bool:
        """Whether any node says what it is."""
        return any(kind is not None for kind in self.kinds.values())


def read_graph(path: Path) -> Graph:
    """The graph of a GraphML, GML or node-link JSON file.

    Raises:
        UserError: it is none, two nodes have one name, or a link has an end that is no node.
    """
    import networkx as nx

    read, form = {".json": (_of_json, "node-link JSON"), ".gml": (_of_gml, "GML")}.get(
        path.suffix.lower(), (_of_graphml, "GraphML")
    )
    try:
        return _checked(*read(read_text(path)), str(path), path.parent)
    except UserError:
        raise
    except RecursionError:
        raise UserError("nested too deeply", str(path)) from None
    except (nx.NetworkXException, ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
        said = "nodes and links are lists of objects" if isinstance(error, (TypeError, AttributeError)) else said
        raise UserError(f"not valid {form}: {said}", str(path)) from None


def graph_of(given: Any) -> Graph:
    """A graph of networkx; see :func:`read_graph`."""
    return _checked(given.graph, given.nodes(data=True), given.edges(data=True), "graph", Path.cwd())


_Parts = tuple[Mapping[str, Any], Iterable[tuple[Any, Any]], Iterable[tuple[Any, Any, Any]]]


def _checked(attributes: Mapping[str, Any], nodes: Any, links: Any, where: str, folder: Path) -> Graph:
    import networkx as nx

    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.graph |= attributes
    problems = []
    for name, values in nodes:
        if name is None or name == "" or str(name) in graph:
            text = "expected a name of each node, found none" if name in (None, "") else "a second node of this name"
            problems.append(Problem(text, where, f'node "{name}"'))
        graph.add_nodes_from([(str(name), {key: _plain(value) for key, value in values.items()})])
    for first, second, values in links:
        lost = [str(end) for end in (first, second) if str(end) not in graph]
        problems += [Problem("a link leads to this node, which is not there", where, f'node "{end}"') for end in lost]
        stated = {key: _plain(value) for key, value in values.items()}
        if not lost and stated not in (graph.get_edge_data(str(first), str(second)) or {}).values():
            graph.add_edges_from([(str(first), str(second), stated)])  # there and back again, where directions differ
    if problems:
        raise UserError(dict.fromkeys(problems))
    return Graph(graph, where, folder)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _of_json(text: str) -> _Parts:
    """Newer versions of networkx call the links `edges`."""
    values = json.loads(text, object_pairs_hook=_once)
    if not isinstance(values, dict) or not values.get("nodes"):
        raise ValueError("expected an object with `nodes` and `links`")
    links = [*values.get("links", []), *values.get("edges", [])]
    return (
        values.get("graph", {}),
        [(node["id"], node) for node in values["nodes"]],
        [(link["source"], link["target"], link) for link in links],
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
        raise ValueError(f"the key {twice[0]} is there twice")
    return dict(pairs)


def _of_gml(text: str) -> _Parts:
    """Links may be parallel, whether the file says so or not, as in 96 of the 276 of the Internet Topology Zoo."""
    import networkx as nx

    numbers: Any = None  # nodes are called by their numbers, which the types of networkx do not know
    graph = nx.parse_gml(re.sub(r"^(\s*graph\s*\[)", r"\1 multigraph 1", text, count=1, flags=re.M), label=numbers)
    return graph.graph, graph.nodes(data=True), graph.edges(data=True)


def _of_graphml(text: str) -> _Parts:
    """A document type is refused: it can define entities that expand to gigabytes or read other files."""
    from networkx.readwrite.graphml import GraphMLReader

    if "<!DOCTYPE" in text:
        raise ValueError("a document type (DOCTYPE) is not allowed here")
    root = fromstring(text)
    reader: Any = GraphMLReader()
    graphs = root.findall(f".//{_GRAPHML}graph")
    if len(graphs) != 1 or root.find(f".//{_GRAPHML}hyperedge") is not None:
        raise ValueError(f"expected one <graph> of nodes and edges in the namespace of GraphML, found {len(graphs)}")
    for key in root.findall(f"{_GRAPHML}key"):  # other programs' drawings have no name and no type
        key.attrib = {"attr.name": "drawing", "attr.type": "string"} | key.attrib
    keys, defaults = reader.find_graphml_keys(root)

    def values(element: Any, kind: str) -> dict[str, Any]:
        own = {keys[key]["name"]: value for key, value in defaults.items() if keys[key]["for"] in (kind, "all", None)}
        return {**own, **reader.decode_data_elements(keys, element)}

    nodes = [(each.get("id"), values(each, "node")) for each in root.iter(f"{_GRAPHML}node")]
    links = [(each.get("source"), each.get("target"), values(each, "edge")) for each in root.iter(f"{_GRAPHML}edge")]
    return values(graphs[0], "graph"), nodes, links


def tree_document(read: Graph) -> Document:
    """The graph as a document of the YAML form, whose messages name nodes.

    Raises:
        UserError: with everything that keeps it from being a tree of a cloud, edge servers and devices.
    """
    graph, document = read.graph, empty_document(read.where, read.folder)
    cloud, above = _parents(read)
    kinds, below = read.kinds, defaultdict(list)
    for name in graph:
        if name in above:
            below[above[name]].append(name)

    def wire(name: str) -> Mapping[str, Any]:
        return next(iter(graph[above[name]][name].values()))

    every = [values for *_, values in graph.edges(data=True)]
    by_default = [key for key in _OF_LINKS if all(values.get(key) == every[0].get(key) for values in every)]
    lost = [
        Problem("expected this on the link from an edge server to the node above", read.where, f'node "{name}".{key}')
        for name, values in graph.nodes(data=True)
        for key in _OF_LINKS
        if key in values or (kinds[name] == "device" and key not in by_default and key in wire(name))
    ]
    if lost:
        raise UserError(lost)

    def link(name: str) -> Any:
        """The options of the link above an edge server: where it says what it is, everything else on it is an option
        of that."""
        values = {key: value for key, value in wire(name).items() if key not in COLUMNS or key in _ON_WIRES}
        if "link" not in values:
            return _ours(values, (*COLUMNS, *_ON_WIRES))
        stated = values.pop("link")
        options = {key: value_of(key, value) for key, value in values.items() if key not in _STRUCTURE}
        return (dict(stated) if isinstance(stated, Mapping) else {"name": stated}) | options

    def device(name: str, path: tuple[str | int, ...]) -> dict[str, Any]:
        document.labels[path] = f'node "{name}"'
        on_air = {key: value for key, value in wire(name).items() if key not in _OF_LINKS}
        own = {
            key: value
            for key, value in _ours(graph.nodes[name], _ON_NODES).items()
            if key not in _TRUST or value not in _NO_TRUST
        }
        return {"name": name} | own | _ours(on_air, tuple(COLUMNS))

    def server(name: str, path: tuple[str | int, ...]) -> dict[str, Any]:
        document.labels[path] = f'node "{name}"'
        values = {"name": name} | _ours(graph.nodes[name], _ON_NODES)
        if of_link := link(name):
            values["link"] = of_link
        made, key = (server, "edges") if any(kinds[each] == "edge" for each in below[name]) else (device, "devices")
        return values | {key: [made(each, (*path, key, at)) for at, each in enumerate(below[name])]}

    for key, value in _ours(graph.graph, (*_ON_GRAPH, *PARTS)).items():
        document.set(key, value, read.where)
    if "trust" in graph.nodes[cloud]:
        document.labels["cloud", "trust"] = f'node "{cloud}".trust'
        document.set("cloud.trust", graph.nodes[cloud]["trust"], read.where)
    edges = [server(name, ("edges", at)) for at, name in enumerate(below[cloud])]
    document.set("edges", edges, read.where)
    return document


def _parents(read: Graph) -> tuple[str, dict[str, str]]:
    """The cloud, and the node above every other one.

    Raises:
        UserError: problems of one sort only: kinds, else links of devices, else the tree's shape, as each sort causes
            some of the next.
    """
    import networkx as nx

    graph, kinds = read.graph, read.kinds
    if len(graph) > 1 and not read.has_roles:
        raise UserError(_NO_ROLES, read.where)

    def refuse(*problems: tuple[str, str]) -> None:
        """Pairs of a node, perhaps with a key, and what is wrong."""
        if problems:
            raise UserError(Problem(text, read.where, key) for key, text in problems)

    known, clouds = ", ".join(KINDS), [f'node "{name}"' for name, kind in kinds.items() if kind == "cloud"]
    refuse(
        *(
            (f'node "{name}".kind', f"expected one of {known}, found {quote(kind)}")
            for name, kind in kinds.items()
            if kind not in KINDS
        ),
        *((other, f"a second cloud (the first is {clouds[0].removeprefix('node ')})") for other in clouds[1:]),
        *([] if clouds else [("", "expected one node of kind cloud, found none")]),
    )
    links = {name: [(end, kinds[end]) for _, end in graph.edges(name)] for name in graph if kinds[name] == "device"}
    refuse(*((f'node "{name}"', text) for name, ends in links.items() if (text := _misplaced(ends))))
    cloud = next(name for name, kind in kinds.items() if kind == "cloud")
    if not nx.is_forest(graph):
        first, second, *_ = nx.find_cycle(graph)[0]
        refuse(("", f'the links form a cycle through "{first}" and "{second}"; expected a tree'))
    above = dict(nx.bfs_predecessors(graph, cloud))
    lost = [name for name, kind in kinds.items() if kind == "edge" and name not in above]
    refuse(*((f'node "{name}"', "no link to the cloud or to an edge server on the way there") for name in lost))
    below = defaultdict(set)
    for name, upper in above.items():
        below[upper].add(kinds[name])
    mixed = [f'node "{name}"' for name, found in below.items() if len(found) > 1]
    refuse(*((name, "devices and edge servers below it; expected one of both") for name in mixed))
    tiers = {name: depth for name, depth in nx.shortest_path_length(graph, cloud).items() if kinds[name] == "edge"}
    deep = [f'node "{name}"' for name, depth in tiers.items() if depth > MOST_TIERS]
    refuse(*((name, f"expected at most {MOST_TIERS} tiers; this one is below them") for name in deep[:1]))
    return cloud, above


def _misplaced(ends: Sequence[tuple[str, str]]) -> str:
    """The mistake in the links of a device, to nodes of some kinds; empty for nothing."""
    wrong = [f'{kind} "{name}"' for name, kind in ends if kind != "edge"]
    if not ends:
        return "no link to an edge server"
    if wrong:
        return f"a device linked to the {wrong[0]}; expected an edge server"
    (first, _), (second, _) = ends[0], ends[-1]
    again = "a second link to the same node" if first == second else "two parents"
    return "" if len(ends) == 1 else f'{again} ("{first}" and "{second}"); expected one'


def _ours(attributes: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The attributes meant for us, which may be misspelt; other programs' (positions, colours) are left out.

    Words spell numbers and booleans, as other programs write these as texts.
    """
    return {
        key: value if key == "name" else value_of(key, value)
        for key, value in attributes.items()
        if key not in _STRUCTURE and _is_ours(key, known)
    }


@lru_cache(maxsize=1024)
def _is_ours(key: str, known: tuple[str, ...]) -> bool:
    return bool(difflib.get_close_matches(key.split(".")[0], known, n=1, cutoff=_AS_CLOSE_AS))


RATE_MBPS = 100.0  # of links whose file states none, as in the paper's networks
_MOST_NODES = 2_000  # of a graph in which the cloud's place is looked for


def from_backbone(
    read: Graph, cloud: str | None = None, edges: Sequence[str] = (), devices: int = 5, rate_mbps: float = RATE_MBPS
) -> tuple[list[dict[str, Any]], str]:
    """The `edges:` of a topology file, of nodes without roles, and what is to be said about them.

    A tree keeps its tiers: nodes with others behind them, as seen from the cloud, are edge servers above these. In any
    other graph, and where `edges` names nodes, each is an edge server directly below the cloud. Its message takes the
    fastest way, one link after the other, so that seconds and joules of the links add up: its link has the rate
    1 / sum(1 / rate). At the cloud's own node it is unlimited. Of parallel links the fastest counts.

    Args:
        read: nodes may state `trust` or `trusted`; links `rate_mbps`, or bits a second as `LinkSpeedRaw`, as in the
            Internet Topology Zoo.
        cloud: the node; None for that from which a message to all others takes least time in all.
        edges: the nodes that become edge servers; empty for all from which there is a way to the cloud.
        devices: of each lowest edge server, at 10 to 100 m.
        rate_mbps: of links that state none.

    Raises:
        UserError: no such node, or a link without speed.
    """
    import networkx as nx

    names = _names(read.graph)
    network: nx.Graph[str] = nx.Graph()
    network.add_nodes_from((name, _ours(read.graph.nodes[key], _TRUST)) for key, name in names.items())
    for one, other, values in read.graph.edges(data=True):
        first, second, link_rate = names[one], names[other], _rate_mbps(values, rate_mbps)
        if not link_rate > 0:
            text = f"the link of {first} and {second}: expected a rate above 0 Mbps; found {link_rate:g}"
            raise UserError(text, read.where)
        seconds = 1 / link_rate  # of a megabit
        if first != second and seconds < network.get_edge_data(first, second, {"seconds": np.inf})["seconds"]:
            network.add_edge(first, second, seconds=seconds)
    asked = [*(("--edges", name) for name in edges), *([] if cloud is None else [("--cloud", cloud)])]
    if unknown := [each for each in asked if each[1] not in network]:
        raise UserError(Problem(_no_such_node(name, network), read.where, option) for option, name in unknown)
    cloud = cloud or _middle(network, read.where)
    away = nx.single_source_dijkstra_path_length(network, cloud, weight="seconds")
    below = {"devices": {"count": devices, "distance_m": {"uniform": DISTANCE_RANGE_M}}}

    def server(name: str, seconds: float) -> dict[str, Any]:
        return {"name": name, **network.nodes[name], "link": {"rate_mbps": 1 / seconds if seconds else UNLIMITED}}

    depth = max(nx.single_source_shortest_path_length(network, cloud).values())
    if not edges and nx.is_tree(network) and 1 < depth <= MOST_TIERS:
        behind = nx.bfs_tree(network, cloud)

        def tier(upper: str) -> list[dict[str, Any]]:
            return [
                server(name, network.edges[upper, name]["seconds"]) | ({"edges": tier(name)} if behind[name] else below)
                for name in behind[upper]
            ]

        tiers = f"; a tree, with its {counted(depth, 'tier')} (--edges puts all directly below the cloud)"
        return tier(cloud), f"the cloud sits at {cloud}{tiers}"
    wanted = [name for name in names.values() if not edges or name in edges]
    lost = [name for name in wanted if name not in away]
    left_out = f"; without a way to it and left out: {', '.join(lost)}" if lost else ""
    made = [server(name, away[name]) | below for name in wanted if name in away]
    return made, f"the cloud sits at {cloud}{left_out}"


def unused(read: Graph) -> set[str]:
    """Attributes of nodes and links that say nothing about a network here."""
    roles = read.has_roles
    on_nodes: tuple[str, ...] = _ON_NODES if roles else _TRUST
    on_links: tuple[str, ...] = (*COLUMNS, *_ON_WIRES) if roles else ("rate_mbps", "LinkSpeedRaw")
    stated = {key for _, values in read.graph.nodes(data=True) for key in values if key not in on_nodes}
    for *_, values in read.graph.edges(data=True):  # a link of one's own has options
        stated |= {key for key in values if key not in on_links and not ("link" in values and roles)}
    return stated - {"label", *_STRUCTURE}


def _no_such_node(name: str, network: Any) -> str:
    return f'expected the name of a node, as {meant(name, network) or ", ".join(list(network)[:3])}; found "{name}"'


def _names(graph: nx.MultiGraph[str]) -> dict[str, str]:
    """Each node's name by its id: its label where no other has it, else with the id."""
    labels = {name: " ".join(str(label).split()) for name, label in graph.nodes(data="label", default="")}
    shared = Counter(labels.values())
    return {
        key: key if not label else label if shared[label] == 1 else f"{label}-{key}" for key, label in labels.items()
    }


def _rate_mbps(attributes: Mapping[str, Any], default: float) -> float:
    for key, unit in (("rate_mbps", 1.0), ("LinkSpeedRaw", 1e-6)):
        value = value_of(key, attributes.get(key))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) * unit
    return default


def _middle(network: Any, where: str) -> str:
    """The node of the largest part from which all others of it are nearest in all; the first of equal ones."""
    import networkx as nx

    if len(network) > _MOST_NODES:
        raise UserError(f"expected --cloud, as there are more than {_MOST_NODES:,} nodes to choose from", where)
    largest = max(nx.connected_components(network), key=len)
    total: dict[str, float] = {
        name: sum(nx.single_source_dijkstra_path_length(network, name, weight="seconds").values())
        for name in network
        if name in largest
    }
    return min(total, key=lambda name: round(total[name], 12))
