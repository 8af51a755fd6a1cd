"""Read graphs: GraphML, and node-link JSON, the form that networkx and many tools for graphs exchange; and CSV files.

GraphML is read as the node-link form, so that both are checked in one way, with the lines of nodes and links. GML, in
which graphs without roles come, is read by networkx.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
from pydantic import Field

from h2fdp.config import Document, Section, check, parse
from h2fdp.config.fields import Expect
from h2fdp.config.parsing import Node, plain_scalar, read_text
from h2fdp.errors import Problem, UserError
from h2fdp.network.graph_import import ON_GRAPH, ON_LINKS, ON_NODES, Graph, GraphLink, GraphNode, Places
from h2fdp.network.mobility import Mobility
from h2fdp.network.templates import MOST_DEVICES

_NOT_TEXTS = {*ON_LINKS, *ON_NODES, *ON_GRAPH} - {"name"}
_NAMESPACE = "http://graphml.graphdrawing.org/xmlns:"  # before the name of an element


_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\.", re.DOTALL)
_Mappings = list[Annotated[dict[str, Any], Expect("keys and values")]]


class _NodeLink(Section):
    """The outer form; newer versions of networkx call the links `edges`."""

    directed: Any = None
    multigraph: Any = None
    graph: Annotated[dict[str, Any], Expect("keys and values")] = Field(default_factory=dict)
    nodes: Annotated[_Mappings, Field(min_length=1), Expect("a list of at least one node")]
    links: Annotated[_Mappings, Expect("a list of links")] = Field(default_factory=list)
    edges: Annotated[_Mappings, Expect("a list of links")] = Field(default_factory=list)


def read_graph(path: Path) -> Graph:
    """The graph of a GraphML file, or of a node-link JSON file.

    Raises:
        UserError: malformed XML or JSON, a document type or entities, deep nesting, neither GraphML nor node-link,
            nodes without an id or links without ends.
    """
    text, file = read_text(path), str(path)
    root = _parse(text, file) if path.suffix.lower() == ".json" else _graphml(file, text)
    document = Document(file, root, path.parent)
    if not isinstance(root.content, dict):
        raise UserError("expected an object with `nodes` and `links`", file)
    form = check(_NodeLink, document)
    problems: list[Problem] = []

    def name(value: Any, place: tuple[str | int, ...]) -> str:
        """A node's id; numbers are names too, as networkx numbers nodes."""
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(value)
        found = "nothing" if value is None else "something else"
        problems.append(
            Problem(f"expected a text or a whole number, found {found}", document.where(place), document.key(place))
        )
        return ""

    nodes = [
        GraphNode(name(node.get("id"), ("nodes", index, "id")), node, document.where(("nodes", index)))
        for index, node in enumerate(form.nodes)
    ]
    links = []
    for key, listed in (("links", form.links), ("edges", form.edges)):
        for index, link in enumerate(listed):
            source, target = (name(link.get(end), (key, index, end)) for end in ("source", "target"))
            links.append(GraphLink((source, target), link, document.where((key, index))))
    if problems:
        raise UserError(problems)
    return Graph(path, form.graph, nodes, links)


def read_gml(path: Path) -> Graph:
    """The graph of a GML file, as the Internet Topology Zoo has them; nodes are called by their numbers.

    Raises:
        UserError: it is none.
    """
    import networkx as nx

    numbers: Any = None  # which its types do not know
    try:
        made = nx.parse_gml(read_text(path), label=numbers)
    except (nx.NetworkXException, ValueError, RecursionError) as error:
        raise UserError(f"not valid GML: {' '.join(str(error).split())[:200]}", str(path)) from None
    nodes = [GraphNode(str(name), values, str(path)) for name, values in made.nodes(data=True)]
    links = [GraphLink((str(first), str(second)), values, str(path)) for first, second, values in made.edges(data=True)]
    return Graph(path, made.graph, nodes, links)


def read_csv(path: Path, most: int) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The first line of a CSV file, and the number and the cells of each line below that is not empty.

    Raises:
        UserError: it cannot be read, or has more than `most` such lines.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = [each.strip() for each in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if any(each.strip() for each in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot be read: {getattr(error, 'strerror', None) or error}", str(path)) from None
    if len(rows) > most:
        raise UserError(f"expected at most {most:,} lines, found {len(rows):,}", str(path))
    return header, rows


_AXES = {"lat": "lat", "latitude": "lat", "lon": "lon", "lng": "lon", "long": "lon", "longitude": "lon",
         "x": "x", "x_m": "x", "y": "y", "y_m": "y"}  # fmt: skip
_NAMED = ("name", "id", "site_id")


def read_places(path: Path) -> Places:
    """A CSV file with the columns x and y (metres), or lat and lon (degrees), and perhaps name, id or site_id.

    Raises:
        UserError: with every line that has no place.
    """
    header, rows = read_csv(path, MOST_DEVICES)
    columns = [each.lower() for each in header]
    axes = {_AXES[each]: at for at, each in enumerate(columns) if each in _AXES}
    on_earth = {"lat", "lon"} <= axes.keys()
    if not (on_earth or {"x", "y"} <= axes.keys()):
        found = ", ".join(header) or "nothing"
        raise UserError(f"expected the columns x and y, or lat and lon; found {found}", f"{path}:1")
    if not rows:
        raise UserError("expected at least one line below the columns, found none", f"{path}:1")
    if {"lat", "lon", "x", "y"} <= axes.keys():
        raise UserError("expected either the columns x and y or lat and lon, found both", f"{path}:1")
    read = ("lat", "lon") if on_earth else ("x", "y")
    named = next((columns.index(each) for each in _NAMED if each in columns), None)
    positions, problems = np.zeros((len(rows), 2)), []
    names: dict[str, int] = {}  # the line where each is first
    for place, (line, cells) in enumerate(rows):
        for axis, most in zip(read, (90.0, 180.0), strict=True):
            text = cells[axes[axis]].strip() if axes[axis] < len(cells) else ""
            try:
                positions[place, read.index(axis)] = value = float(text)
                good = abs(value) <= most if on_earth else np.isfinite(value)
            except ValueError:
                good = False
            if not good:
                expected = f"a number from -{most:g} to {most:g}" if on_earth else "a finite number"
                problems.append(Problem(f'expected {expected}, found "{text}"', f"{path}:{line}", axis))
        if named is not None:
            name = cells[named].strip() if named < len(cells) else ""
            if not name or names.setdefault(name, line) != line:
                found = f"{name}, as in line {names[name]}" if name else "none"
                problems.append(Problem(f"expected a name of its own, found {found}", f"{path}:{line}", header[named]))
    if problems:
        raise UserError(problems[:50])
    return Places(path, positions, on_earth, list(names) if named is not None else None)


_TRACE = ("interval", "device", "edge", "distance_m")
MOST_LINES = 200_000


def read_trace(path: Path) -> Mobility:
    """The trace of a CSV file with the columns interval, device, edge and, if any, distance_m.

    Raises:
        UserError: with every line that is none.
    """
    header, rows = read_csv(path, MOST_LINES)
    if tuple(header) not in (_TRACE, _TRACE[:3]):
        text = f"expected the columns {', '.join(_TRACE)}, the last of which may be left out"
        raise UserError(f"{text}; found {', '.join(header) or 'nothing'}", f"{path}:1")
    return Mobility([_move(row) for _, row in rows], places=[f"{path}:{number}" for number, _ in rows])


def _move(row: Sequence[str]) -> tuple[Any, ...]:
    """What stands in a line: what is no number stays a text, which is refused with its line."""
    interval, *words = (each.strip() for each in row)
    return (plain_scalar(interval), *words[:2], *map(plain_scalar, words[2:]))


def _graphml(file: str, text: str) -> Node:
    """GraphML as the values of the node-link form, `graph`, `nodes` and `links`, each with the line of its element.

    A document type is refused: it can define entities that expand to gigabytes or read other files.
    """
    parser, builder = expat.ParserCreate(namespace_separator=":"), TreeBuilder()
    lines: dict[Element, str] = {}

    def here() -> str:
        return f"{file}:{parser.CurrentLineNumber}"

    def refuse(*_: object) -> None:
        raise UserError("a document type (DOCTYPE) is not allowed here", here())

    def begin(tag: str, given: dict[str, str]) -> None:
        lines[builder.start(_name(tag), given)] = here()

    parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse, begin
    parser.CharacterDataHandler, parser.EndElementHandler = builder.data, lambda tag: builder.end(_name(tag))
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise UserError(f"not valid XML: {expat.ErrorString(error.code)}", f"{file}:{error.lineno}") from None
    root = builder.close()
    graphs, keys = [*root.iter("graph")], {key.get("id"): key for key in root.iter("key")}
    if not graphs:
        raise UserError("expected a <graph> in the namespace of GraphML, found none", file)
    for other in [*graphs[1:], *root.iter("hyperedge")]:
        raise UserError(f"expected one graph of nodes and edges, found another <{other.tag}>", lines[other])

    def stated(element: Element, kind: str, *ends: str) -> Node:
        """What an element is about: its ends, and the values of its keys, or their defaults."""
        where = lines[element]
        content = {end: Node(element.get(end), where) for end in ends}
        for key in keys.values():
            default = key.find("default")
            if default is not None and key.get("for", "all") in ("all", kind):
                content |= _stated(key, default.text or "", where)
        for data in element.findall("data"):
            if (of := keys.get(data.get("key"))) is None:
                raise UserError(f'expected a declared key, found "{data.get("key", "")}"', lines[data])
            content |= _stated(of, data.text or "", lines[data])
        return Node(content, where)

    nodes = [stated(each, "node", "id") for each in root.iter("node")]
    links = [stated(each, "edge", "source", "target") for each in root.iter("edge")]
    return Node({"graph": stated(graphs[0], "graph"), "nodes": Node(nodes, file), "links": Node(links, file)}, file)


def _name(tag: str) -> str:
    """An element of GraphML by its name alone; others keep their namespace, or a colon in the place of one."""
    return tag.removeprefix(_NAMESPACE) if tag.startswith(_NAMESPACE) else f":{tag}"


def _stated(key: Element, text: str, where: str) -> dict[str, Node]:
    """The value of a key; words of our keys spell numbers and booleans. Other programs' drawings have no name."""
    name, kind = key.get("attr.name"), key.get("attr.type", "string")
    if name is None:
        return {}
    value: Any = plain_scalar(text.strip()) if kind != "string" or name.split(".")[0] in _NOT_TEXTS else text
    return {name: Node(bool(value) if kind == "boolean" and value in (0, 1) else value, where)}


def _parse(text: str, name: str) -> Node:
    """JSON as values with their lines: every JSON text is YAML too, so the bounds are the same.

    Characters beyond 16 bits, which JSON may write as two escapes and YAML may not, are written out first.
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"not valid JSON: {error.msg.lower()}", f"{name}:{error.lineno}") from None
    except RecursionError:
        raise UserError("nested too deeply", name) from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise UserError(f"not valid JSON: {error}", name) from None
    return parse(_ESCAPE.sub(_one_character, text), name)


def _one_character(escape: re.Match[str]) -> str:
    """The character of a surrogate pair; any other escape as it is."""
    if escape[1] is None:
        return escape[0]
    return chr(0x10000 + ((int(escape[1], 16) - 0xD800) << 10) + int(escape[2], 16) - 0xDC00)
