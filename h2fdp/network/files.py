"""Read and write a topology: YAML, GraphML or node-link JSON, by the suffix of the file."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.config import Document, check, empty_document, read_document
from h2fdp.config.parsing import plain_scalar
from h2fdp.errors import Problem, UserError
from h2fdp.network.adversaries import Adversaries, drawn
from h2fdp.network.channel import ACCESSES, FADINGS, PATH_LOSSES
from h2fdp.network.devices import Floats
from h2fdp.network.graph_files import read_gml, read_graph, read_places, read_trace
from h2fdp.network.graph_import import from_graph, from_places, tree_document
from h2fdp.network.mobility import Mobility
from h2fdp.network.network import CLOUD, Aggregator, Link, Subnet, TrustSection
from h2fdp.network.schema import UNLIMITED, AdversariesSection, TopologyFile
from h2fdp.network.templates import expand, name_problems
from h2fdp.network.topology import Topology
from h2fdp.streams import Streams

_GRAPHS = (".gml", ".graphml", ".xml", ".json")
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
    elif first.is_file() and first.suffix.lower() not in _GRAPHS:
        raise UserError(f"expected a name that ends in {', '.join(_GRAPHS)}, or .csv", str(first))
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
    return Mobility(lines, section.stay, section.waypoint, handover, places)


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
    kind = format_of(path)
    text = yaml_text(topology, state_trust) if kind == "yaml" else _graph_text(topology, kind, state_trust)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path)) from None


MOST_EXPLICIT_DEVICES = 1_000  # in a larger network, distances that follow a rule are written as the rule
_SPELT = {"None": "null", "inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_WORD = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)


def yaml_text(topology: Topology, state_trust: bool = True) -> str:
    """The topology as a YAML file, an edge server on each line, or a named device.

    >>> print(yaml_text(Topology.regular(edges=1, devices=2, trust=1.0, name="small")).splitlines()[-1])
      - {name: edge-1, trusted: true, devices: {count: 2, distance_m: [45.792, 29.859], power_dbm: 24}}
    """
    default, explicit = common_link(topology), topology.devices <= MOST_EXPLICIT_DEVICES
    nodes = {server.name: server for server in topology.servers()}

    def written(name: str, indent: str) -> Iterator[str]:
        """An edge server and all below it."""
        node = nodes[name]
        values = {"name": name, **(trust_values(node) if state_trust else {})}
        values |= {} if node.link == default else {"link": link_values(node.link)}
        if isinstance(node, Subnet) and node.names is None:
            yield f"{indent}- {flow(values | {'devices': _devices(node, explicit)})}"
            return
        for key, value in values.items():
            yield f"{indent}{'-' if key == 'name' else ' '} {key}: {flow(value)}"
        if isinstance(node, Subnet):
            yield f"{indent}  devices:"
            yield from (f"{indent}    - {flow(device)}" for device in named_devices(node))
            return
        yield f"{indent}  edges:"
        for child in topology.children(name):
            yield from written(child, indent + "  ")

    lines = [f"{key}: {flow(value)}" for key, value in head(topology, state_trust).items()]
    lines += [f"cloud: {flow({'link': link_values(default), **cloud_trust(topology)})}", "edges:"]
    for name in topology.children(None):
        lines += written(name, "  ")
    return "\n".join(lines) + "\n"


def head(topology: Topology, state_trust: bool) -> dict[str, Any]:
    """Everything about the network but its nodes, in the file's keys and units."""
    radio = topology.radio
    values: dict[str, Any] = {
        "name": topology.name,
        "radio": {
            "bandwidth_mhz": mega(radio.bandwidth_hz),
            "noise_dbm_per_hz": radio.noise_dbm_per_hz,
            "access": ACCESSES.stated(radio.access),
            "fading": FADINGS.stated(radio.fading),
            "fading_floor_db": radio.fading_floor_db,
            "bits_per_parameter": radio.bits_per_parameter,
            "pathloss": PATH_LOSSES.stated(radio.pathloss),
        },
    }
    probability = topology.trust_probability
    if probability is not None or not state_trust:
        trusted = TrustSection().bounds[0] if probability is None else probability
        secure = topology.secure_sum_probability
        values["trust"] = {"trusted": trusted, "secure-sum": secure} if secure else {"probability": trusted}
    if topology.mobility is not None:
        wire = topology.mobility.handover
        values["mobility"] = topology.mobility.values() | ({} if wire is None else {"handover": link_values(wire)})
    if topology.association is not None:
        values["association"] = topology.association.values()
    if topology.adversaries is not None:
        values["adversaries"] = topology.adversaries.values()
    return values


def trust_values(server: Subnet | Aggregator) -> dict[str, Any]:
    """The trust in an edge server, in the file's keys."""
    plain = server.trust in ("trusted", "untrusted")
    return {"trusted": server.trusted} if plain else {"trust": server.trust}


def cloud_trust(topology: Topology) -> dict[str, Any]:
    """The trust in the cloud, in the file's keys, where it is not the default."""
    return {} if topology.cloud_trust == "untrusted" else {"trust": topology.cloud_trust}


def common_link(topology: Topology) -> Link:
    """The link that most edge servers have; only others are written at their edge server."""
    links = [each.link for each in topology.subnets] + [each.link for each in topology.aggregators]
    return Counter(links).most_common(1)[0][0]


def link_values(link: Link) -> dict[str, Any]:
    """A link in the file's keys and units."""
    return {"rate_mbps": UNLIMITED if math.isinf(link.rate_bps) else mega(link.rate_bps), "power_dbm": link.power_dbm}


def mega(value: float) -> float:
    """A value in millions, such that a million times it is the value to the last bit where a float can do that."""
    quotient = value / 1e6
    near = (quotient, math.nextafter(quotient, math.inf), math.nextafter(quotient, 0.0))
    return min(
        (candidate for candidate in near if candidate * 1e6 == value),
        key=lambda candidate: len(repr(candidate)),
        default=quotient,
    )


def flow(value: Any) -> str:
    """A value on one line of YAML, read back by our own rules of what a plain word means.

    >>> flow({"name": "1e5", "distance_m": [40.0, 75.5], "trusted": True})
    '{name: "1e5", distance_m: [40, 75.5], trusted: true}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _WORD.fullmatch(value) and plain_scalar(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value).removesuffix(".0")
    return _SPELT.get(text, text)


def _devices(subnet: Subnet, explicit: bool) -> dict[str, Any]:
    rules = {} if explicit else subnet.rules
    return {"count": subnet.size} | {
        name: {"uniform": [rules[name].lowest, rules[name].highest], "seed": rules[name].seed}
        if name in rules
        else _one_or_all(values)
        for name, values in subnet.columns.items()
    }


def _one_or_all(values: Floats) -> Any:
    """One number when all are equal."""
    return float(values[0]) if np.all(values == values[0]) else values.tolist()


def named_devices(subnet: Subnet) -> list[dict[str, Any]]:
    """The name and the numbers of each device."""
    rows = zip(*(values.tolist() for values in subnet.columns.values()), strict=True)
    return [
        {"name": name, **dict(zip(subnet.columns, numbers, strict=True))}
        for name, numbers in zip(subnet.device_names(), rows, strict=True)
    ]


MOST_GRAPH_DEVICES = 20_000  # beyond these the file would be larger than what is read, 5 MB
_SECOND_NAME = "the cloud"  # of the cloud's node, in a star whose edge server is the cloud's own and named so
_NOT_IN_GRAPHS = {"mobility": "how devices move", "adversaries": "which nodes lie", "association": "how devices join"}


def _graph_text(topology: Topology, kind: str, state_trust: bool) -> str:
    """The topology as GraphML, in which what concerns the whole has dotted keys, or as node-link JSON."""
    import networkx as nx  # 0.2 s, for those who write graphs

    for key, what in _NOT_IN_GRAPHS.items():
        if getattr(topology, key) is not None:
            raise UserError(f"a graph does not say {what}; expected .yaml", topology.name, key)
    if topology.devices > MOST_GRAPH_DEVICES:
        text = f"expected at most {MOST_GRAPH_DEVICES:,} devices for a graph format, found {topology.devices:,}"
        raise UserError(f"{text}; use .yaml", topology.name)
    whole = head(topology, state_trust)
    graph: nx.Graph[str] = nx.Graph(**(_dotted(whole) if kind == "graphml" else {}))
    cloud = _SECOND_NAME if any(subnet.name == CLOUD for subnet in topology.subnets) else CLOUD
    graph.add_node(cloud, kind="cloud", **cloud_trust(topology))
    for server in topology.servers():
        graph.add_node(server.name, kind="edge", **(trust_values(server) if state_trust else {}))
        graph.add_edge(cloud if server.parent is None else server.parent, server.name, **link_values(server.link))
        for device in [] if isinstance(server, Aggregator) else named_devices(server):
            name = device.pop("name")
            graph.add_node(name, kind="device")
            graph.add_edge(server.name, name, **device)
    if kind == "graphml":
        return "\n".join(nx.generate_graphml(graph)) + "\n"
    values = {
        "directed": False,
        "multigraph": False,
        "graph": whole,
        "nodes": [{"id": name, **node} for name, node in graph.nodes(data=True)],
        "links": [{"source": above, "target": below, **link} for above, below, link in graph.edges(data=True)],
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


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
