"""Read graphs: GraphML, and node-link JSON, the form that networkx and many tools for graphs exchange.

networkx understands GraphML; what it lacks, refusal of entities and line numbers, is here.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any
from xml.parsers import expat

from pydantic import Field

from h2fdp.config import Document, Section, check, parse
from h2fdp.config.fields import Expect
from h2fdp.config.parsing import DEEPEST_NESTING, Node, plain_scalar, read_text
from h2fdp.errors import Problem, UserError
from h2fdp.network.graph_import import ON_GRAPH, ON_LINKS, ON_NODES, Graph, GraphLink, GraphNode

_NOT_TEXTS = {*ON_LINKS, *ON_NODES, *ON_GRAPH} - {"name"}
_TYPES = re.compile(r"""attr\.type\s*=\s*(["'])\w+\1""")


def read_graphml(path: Path) -> Graph:
    """The graph of a GraphML file.

    Raises:
        UserError: malformed XML, a document type or entities, deep nesting, or not GraphML.
    """
    text = read_text(path)
    places = _Places(str(path), text)
    import networkx as nx  # 0.2 s, for those who read graphs

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of keys without a type, whose words we read ourselves
            try:
                network = nx.parse_graphml(text, force_multigraph=True)
            except (ValueError, KeyError):  # a word that is not of its key's type: ours are checked with their nodes
                network = nx.parse_graphml(_TYPES.sub('attr.type="string"', text), force_multigraph=True)
    except (nx.NetworkXError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"not valid GraphML: {error}", str(path)) from None
    except SyntaxError:  # networkx found no graph, and what it then tries is no longer XML
        raise UserError("expected a <graph> in the namespace of GraphML, found none", str(path)) from None
    return Graph(
        path=path,
        attributes=_typed(network.graph),
        nodes=[GraphNode(name, _typed(attributes), places.node(name)) for name, attributes in network.nodes.items()],
        links=[
            GraphLink((first, second), _typed(attributes), places.link(first, second))
            for first, second, attributes in network.edges(data=True)
        ],
    )


def _typed(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with words that were declared as texts read as the numbers and booleans they spell."""
    return {
        key: plain_scalar(value) if isinstance(value, str) and key.split(".")[0] in _NOT_TEXTS else value
        for key, value in attributes.items()
    }


class _Places:
    """The lines of nodes and links, from a first pass that also refuses what no GraphML file needs.

    A document type can define entities that expand to gigabytes or read other files.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._nodes: dict[str, int] = {}
        self._links: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._depth = 0
        self._parser = expat.ParserCreate(namespace_separator=":")  # as the second pass, which needs its prefixes bound
        self._parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            raise UserError(f"not valid XML: {expat.ErrorString(error.code)}", f"{file}:{error.lineno}") from None

    def node(self, name: str) -> str:
        return f"{self._file}:{self._nodes[name]}" if name in self._nodes else self._file

    def link(self, first: str, second: str) -> str:
        lines = self._links[tuple(sorted((first, second)))]
        # networkx gives parallel links in the order of the file
        return f"{self._file}:{lines.pop(0)}" if lines else self._file

    def _here(self) -> str:
        return f"{self._file}:{self._parser.CurrentLineNumber}"

    def _refuse_document_type(self, *_: object) -> None:
        raise UserError("a document type (DOCTYPE) is not allowed here", self._here())

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise UserError(f"nested deeper than {DEEPEST_NESTING} levels", self._here())
        line = self._parser.CurrentLineNumber
        kind = tag.rpartition(":")[2]
        if kind == "node":
            self._add_node(attributes.get("id", ""), line)
        elif kind == "edge":
            ends = sorted((attributes.get("source", ""), attributes.get("target", "")))
            self._links[tuple(ends)].append(line)

    def _add_node(self, name: str, line: int) -> None:
        if not name:
            raise UserError("a node without an id", f"{self._file}:{line}")
        if name in self._nodes:
            raise UserError(
                f"a second node of this name (first on line {self._nodes[name]})",
                f"{self._file}:{line}",
                f'node "{name}"',
            )
        self._nodes[name] = line

    def _end(self, _: str) -> None:
        self._depth -= 1


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


def read_node_link(path: Path) -> Graph:
    """The graph of a node-link JSON file.

    Raises:
        UserError: not JSON, not node-link, nodes without an id or links without ends.
    """
    text = read_text(path)
    document = Document(str(path), _parse(text, str(path)), path.parent)
    if not isinstance(document.root.content, dict):
        raise UserError("expected an object with `nodes` and `links`", str(path))
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
