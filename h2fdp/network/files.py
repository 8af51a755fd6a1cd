"""Read and write a topology: YAML, GraphML or node-link JSON, by the suffix of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2fdp.config import Document, check, empty_document, read_document
from h2fdp.config.parsing import plain_scalar
from h2fdp.errors import Problem, UserError
from h2fdp.network.adversaries import Adversaries, drawn
from h2fdp.network.graph_files import read_gml, read_graph, read_places
from h2fdp.network.graph_import import from_graph, from_places, tree_document
from h2fdp.network.mobility import Mobility, read_trace
from h2fdp.network.network import CLOUD, Aggregator, Link
from h2fdp.network.schema import AdversariesSection, TopologyFile
from h2fdp.network.templates import expand, name_problems
from h2fdp.network.topology import Topology
from h2fdp.network.waypoint import Waypoint
from h2fdp.network.yaml_text import cloud_trust, head, link_values, named_devices, trust_values, yaml_text
from h2fdp.streams import Streams

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".graphml": "graphml", ".xml": "graphml", ".json": "json"}


def format_of(path: Path) -> str:
    """The format that a path's suffix names: yaml, graphml or json."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise UserError(f"expected a name that ends in {', '.join(SUFFIXES)}", str(path)) from None


def read(path: str | Path, seed: int) -> Topology:
    """Read a topology file; what it leaves open is drawn under the seed.

    Raises:
        UserError: with every problem of the file.
    """
    path = Path(path)
    kind = format_of(path) if path.is_file() else "yaml"  # any reader says why there is no file
    document = read_document(path) if kind == "yaml" else tree_document(read_graph(path))
    assert isinstance(document.root.content, dict)
    if "name" not in document.root.content:
        document.set("name", path.stem, str(path))
    return from_document(document, seed)


def imported(
    paths: Sequence[Path], seed: int, trust: Mapping[str, float] | None = None, **options: Any
) -> tuple[Topology, str]:
    """The network of a graph without roles (GML, GraphML, JSON), or of two CSV files, of edge servers and of users.

    Args:
        seed: under which trust and distances are drawn that no file states.
        trust: `trust:` of a topology file; None for the default.
        options: those of `from_graph`.

    Returns:
        the network, and what is to be said of it.

    Raises:
        UserError: none can be made of these files.
    """
    first, *others = paths
    if len(others) > 1:
        raise UserError(f"expected a graph, or two CSV files, found {len(paths)} files", str(first))
    if others and options:
        option = f"--{min(options).replace('_', '-')}"
        raise UserError("means nothing for two CSV files; leave it out", "topology import", option)
    if others:
        found = from_places(read_places(first), read_places(others[0]))
    elif first.suffix.lower() == ".csv":
        raise UserError("expected two CSV files, of edge servers and of users; found this one alone", str(first))
    else:
        found = from_graph(read_gml(first) if first.suffix.lower() == ".gml" else read_graph(first), **options)
    values = {"name": first.stem, "edges": found.edges, **({} if trust is None else {"trust": dict(trust)})}
    return from_document(empty_document(str(first), first.parent, values), seed), found.note


def from_document(document: Document, seed: int) -> Topology:
    """The topology of a document: a file's, or the inline one of an experiment.

    Args:
        document: values in the form of a topology file.
        seed: under which everything that the document leaves open is drawn.

    Raises:
        UserError: with every problem, in the order of their lines.
    """
    try:
        file = check(TopologyFile, document)
    except UserError as error:
        raise UserError(sorted(error.problems, key=_line)) from None
    if problems := [*name_problems(file, document), *_idle_probability(document, file)]:
        raise UserError(sorted(problems, key=_line))
    drawn_topology = Topology(**expand(file, seed))
    try:
        topology = replace(drawn_topology, mobility=_mobility(file, document), association=file.association)
        return topology if file.adversaries is None else _with_adversaries(topology, file.adversaries, seed)
    except UserError as error:
        raise UserError(
            _placed(each, document) if each.where in ("", drawn_topology.name) else each for each in error.problems
        ) from None


def _placed(problem: Problem, document: Document) -> Problem:
    path = tuple(problem.key.split("."))
    return replace(problem, where=document.where(path), key=document.key(path))


def _with_adversaries(topology: Topology, stated: AdversariesSection, seed: int) -> Topology:
    names, streams = topology.names, Streams(seed)
    liars = {key: drawn(getattr(stated, key), names[key], key, streams) for key in names}
    if not any(liars.values()):
        return topology
    return replace(topology, adversaries=Adversaries(stated.attack, **liars))


def _mobility(file: TopologyFile, document: Document) -> Mobility | None:
    """How devices move; a trace in a file of its own is read, from where the topology is."""
    section = file.mobility
    if section is None:
        return None
    wire = section.handover
    handover = None if wire is None else Link(rate_bps=wire.rate_mbps * 1e6, power_dbm=wire.power_dbm)
    if isinstance(section.trace, str):
        return replace(read_trace(document.folder / section.trace), handover=handover)
    lines = section.trace or ()
    places = [document.where(("mobility", "trace", at)) for at in range(len(lines))]
    waypoint = None if section.waypoint is None else Waypoint(**section.waypoint.model_dump())
    return Mobility(lines, section.stay, waypoint, handover, places)


def _idle_probability(document: Document, file: TopologyFile) -> list[Problem]:
    """A probability set from outside a file in which every edge server states its trust would be ignored in silence."""
    if file.trust is None or any(edge.trust is None for edge in file.every_edge()):
        return []
    paths = [("trust", key) for key in document.values()["trust"]]
    edges_source = _source(document, ("edges",))
    return [
        Problem(
            "has no effect: every edge server of this topology states its trust",
            document.where(path),
            document.key(path),
        )
        for path in paths
        if _source(document, path) != edges_source
    ]


def _source(document: Document, path: tuple[str, ...]) -> str:
    """The file, or the command line, that states a key."""
    return re.sub(r":\d+$", "", document.where(path))


def _line(problem: Problem) -> float:
    match = re.search(r":(\d+)$", problem.where)
    return int(match.group(1)) if match else float("inf")


MOST_GRAPH_DEVICES = 20_000  # beyond these the file would be larger than what is read, 5 MB
_SECOND_NAME = "the cloud"  # of the cloud's node, in a star whose edge server is the cloud's own and named so


def write(topology: Topology, path: str | Path, state_trust: bool = True) -> None:
    """Write YAML, GraphML or node-link JSON, by the suffix of the path.

    Args:
        topology: the network. A star is written without its relays, which belong to the network that it was made of:
            what is read back has one channel for all devices, no wires behind it, and other fading.
        path: the file; one that is there is replaced.
        state_trust: whether each edge server's trust is written as drawn, or left to be drawn from the probability.

    Raises:
        UserError: a suffix that names no format, or a place that cannot be written.
    """
    path = Path(path)
    text = {"yaml": yaml_text, "graphml": graphml_text, "json": node_link_text}[format_of(path)](topology, state_trust)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path)) from None


def graphml_text(topology: Topology, state_trust: bool = True) -> str:
    """The topology as GraphML; what concerns the whole has dotted keys, as ``radio.bandwidth_mhz``."""
    import networkx as nx  # 0.2 s, for those who write graphs

    nodes, links = _graph(topology, state_trust)
    network: nx.Graph[str] = nx.Graph(**_dotted(head(topology, state_trust)))
    for node in nodes:
        network.add_node(node.pop("id"), **node)
    for link in links:
        network.add_edge(link.pop("source"), link.pop("target"), **link)
    return "\n".join(nx.generate_graphml(network)) + "\n"


def node_link_text(topology: Topology, state_trust: bool = True) -> str:
    """The topology as node-link JSON, a node or link on each line."""
    nodes, links = _graph(topology, state_trust)
    lists = [
        f'"{key}": [\n  ' + ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in listed) + "\n]"
        for key, listed in (("nodes", nodes), ("links", links))
    ]
    graph = json.dumps(head(topology, state_trust), ensure_ascii=False)
    return '{"directed": false, "multigraph": false,\n"graph": ' + ",\n".join([graph, *lists]) + "}\n"


def _graph(topology: Topology, state_trust: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes with `id` and links with `source` and `target`, from the cloud down."""
    if topology.mobility is not None:
        raise UserError("a graph does not say how devices move; expected .yaml", topology.name, "mobility")
    if topology.adversaries is not None:
        raise UserError("a graph does not say which nodes lie; expected .yaml", topology.name, "adversaries")
    if topology.association is not None:
        raise UserError("a graph does not say how devices join; expected .yaml", topology.name, "association")
    if topology.devices > MOST_GRAPH_DEVICES:
        raise UserError(
            f"expected at most {MOST_GRAPH_DEVICES:,} devices for a graph format, found "
            f"{topology.devices:,}; use .yaml",
            topology.name,
        )
    cloud = _SECOND_NAME if any(subnet.name == CLOUD for subnet in topology.subnets) else CLOUD
    nodes: list[dict[str, Any]] = [{"id": cloud, "kind": "cloud", **cloud_trust(topology)}]
    links: list[dict[str, Any]] = []
    for server in topology.servers():
        trust = trust_values(server) if state_trust else {}
        above = cloud if server.parent is None else server.parent
        nodes.append({"id": server.name, "kind": "edge", **trust})
        links.append({"source": above, "target": server.name, **link_values(server.link)})
        if isinstance(server, Aggregator):
            continue
        for device in named_devices(server):
            name = device.pop("name")
            nodes.append({"id": name, "kind": "device"})
            links.append({"source": server.name, "target": name, **device})
    return nodes, links


def _dotted(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys.

    Raises:
        UserError: a value that GraphML cannot hold, which only a user's own part has.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= _dotted(value, f"{dotted}.")
            continue
        if value is None or isinstance(value, list) or (prefix and isinstance(value, str) != _is_word(value)):
            raise UserError("GraphML holds numbers and words; use .yaml or .json for other options", key=dotted)
        flat[dotted] = value
    return flat


def _is_word(value: Any) -> bool:
    """Whether a text is read back as one."""
    return isinstance(value, str) and isinstance(plain_scalar(value), str)
