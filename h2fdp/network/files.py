"""Read a topology, from YAML or a graph, and write it as YAML."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from h2fdp.config import Document, check, empty_document, read_document
from h2fdp.config.parsing import plain_scalar
from h2fdp.errors import Problem, UserError
from h2fdp.network.channel import ACCESSES, FADINGS, PATH_LOSSES
from h2fdp.network.devices import Floats
from h2fdp.network.graphs import Graph, from_backbone, graph_of, read_graph, tree_document, unused
from h2fdp.network.links import link_values, mega
from h2fdp.network.network import Aggregator, Subnet, TrustSection
from h2fdp.network.parts import Part
from h2fdp.network.places import OF_SERVERS, OF_USERS, from_places, read_places
from h2fdp.network.schema import PARTS, TopologyFile
from h2fdp.network.templates import expand, name_problems
from h2fdp.network.topology import Topology

_YAML, _GRAPHS = (".yaml", ".yml"), (".gml", ".graphml", ".xml", ".json")


def read(path: str | Path, seed: int) -> Topology:
    """Read a topology file; what it leaves open is drawn under the seed.

    Raises:
        UserError: with every problem of the file.
    """
    path = Path(path)
    suffix = path.suffix.lower() if path.is_file() else ".yaml"  # any reader says why there is no file
    if suffix not in (*_YAML, *_GRAPHS):
        raise UserError(f"expected a name that ends in {', '.join((*_YAML, *_GRAPHS))}", str(path))
    document = read_document(path) if suffix in _YAML else tree_document(read_graph(path))
    return from_document(_named(document, path.stem), seed)


def _named(document: Document, name: str) -> Document:
    if "name" not in document.root.content:
        document.set("name", name, document.name)
    return document


def imported(source: Any, seed: int, trust: Mapping[str, float] | None = None, **options: Any) -> tuple[Topology, str]:
    """The network of a graph, with roles or without, or of two CSV files, of edge servers and of users.

    Args:
        source: a list of paths, of a GraphML, GML or JSON file or of two CSV files; or a graph of networkx.
        seed: under which trust and distances are drawn that no file states.
        trust: `trust:` of a topology file; None for the default.
        options: those of `from_backbone`.

    Returns:
        the network, and what is to be said of it. Where an edge server states its trust, trust is as drawn for all.

    Raises:
        UserError: none can be made of these files.
    """
    if hasattr(source, "is_multigraph"):
        return _of_graph(graph_of(source), "graph", seed, trust, options)
    first, *others = source
    if len(others) > 1:
        raise UserError(f"expected a graph, or two CSV files, found {len(source)} files", str(first))
    if others:
        _refuse(options, "two CSV files")
        found = from_places(read_places(first, OF_SERVERS), read_places(others[0], OF_USERS))
        document = empty_document(str(first), first.parent, {"edges": found[0]})
        return _with_trust(_named(document, first.stem), seed, trust, [found[1]])
    if first.suffix.lower() == ".csv":
        raise UserError("expected two CSV files, of edge servers and of users; found this one alone", str(first))
    if first.is_file() and first.suffix.lower() not in _GRAPHS:
        raise UserError(f"expected a name that ends in {', '.join(_GRAPHS)}, or .csv", str(first))
    return _of_graph(read_graph(first), first.stem, seed, trust, options)


def _of_graph(
    graph: Graph, name: str, seed: int, trust: Mapping[str, float] | None, options: dict[str, Any]
) -> tuple[Topology, str]:
    if graph.has_roles:
        _refuse(options, "a graph whose nodes have roles (kind)")
        document, note = tree_document(graph), ""
    else:
        edges, note = from_backbone(graph, **options)
        document = empty_document(graph.where, graph.folder, {"edges": edges})
    left = sorted(unused(graph))
    words = f"not used: {', '.join(left[:_MOST_SAID])}{' and others' if len(left) > _MOST_SAID else ''}" if left else ""
    return _with_trust(_named(document, name), seed, trust, [note, words])


_MOST_SAID = 12


def _refuse(options: Mapping[str, Any], what: str) -> None:
    if options:
        option = f"--{min(options).replace('_', '-')}"
        raise UserError(f"means nothing for {what}; leave it out", "topology import", option)


def _with_trust(
    document: Document, seed: int, trust: Mapping[str, float] | None, notes: list[str]
) -> tuple[Topology, str]:
    """The trusts, as drawn where some edge servers state their trust: a file cannot say that of others alone."""
    if trust is not None:
        document.set("trust", dict(trust), "--trust")
    topology = from_document(document, seed)
    stated = [server.trust is not None for server in check(TopologyFile, document).every_edge()]
    if any(stated) and not all(stated):
        notes.append(f"{stated.count(False)} of {len(stated)} edge servers state no trust: drawn under seed {seed}")
        topology = replace(topology, trust_probability=None, secure_sum_probability=0.0)
    return topology, "\n".join(filter(None, notes))


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
    try:
        topology, stated = Topology(**expand(file, seed)), {key: getattr(file, key) for key in PARTS}
        parts: dict[str, Part | None] = {
            key: section.drawn(key, topology, document, seed) for key, section in stated.items() if section is not None
        }
        return replace(topology, **cast(Any, parts))
    except UserError as error:
        raise UserError(_placed(each, document, file.name) for each in error.problems) from None


def _placed(problem: Problem, document: Document, network: str) -> Problem:
    path = tuple(problem.key.split("."))
    where = document.where(path) if problem.where in ("", network) else problem.where
    return replace(problem, where=where, key=document.key(path))


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
    """Write a network as YAML.

    Args:
        topology: the network. A star is written without its relays, which belong to the network that it was made of:
            what is read back has one channel for all devices, no wires behind it, and other fading.
        path: the file; one that is there is replaced.
        state_trust: whether each edge server's trust is written as drawn, or left to be drawn from the probability.

    Raises:
        UserError: another suffix, or a place that cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in _YAML:
        raise UserError(f"expected a name that ends in {' or '.join(_YAML)}: networks are written as YAML", str(path))
    try:
        path.write_text(yaml_text(topology, state_trust), encoding="utf-8")
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
    links = Counter(each.link for servers in (topology.subnets, topology.aggregators) for each in servers)
    default, explicit = links.most_common(1)[0][0], topology.devices <= MOST_EXPLICIT_DEVICES
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
    return values | {key: part.values() for key, part in topology.parts.items()}


def trust_values(server: Subnet | Aggregator) -> dict[str, Any]:
    """The trust in an edge server, in the file's keys."""
    plain = server.trust in ("trusted", "untrusted")
    return {"trusted": server.trusted} if plain else {"trust": server.trust}


def cloud_trust(topology: Topology) -> dict[str, Any]:
    """The trust in the cloud, in the file's keys, where it is not the default."""
    return {} if topology.cloud_trust == "untrusted" else {"trust": topology.cloud_trust}


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
        name: rules[name] if name in rules else _one_or_all(values) for name, values in subnet.columns.items()
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
