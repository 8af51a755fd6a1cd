"""Read GraphML. networkx understands it; what networkx lacks, refusal of entities and line numbers, is here."""

from __future__ import annotations

import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.parsers import expat

from h2fdp.config.parsing import DEEPEST_NESTING
from h2fdp.config.scalars import plain_scalar
from h2fdp.config.source import read_text
from h2fdp.errors import UserError
from h2fdp.topology.graph_import import ON_GRAPH, ON_LINKS, ON_NODES, Graph, GraphLink, GraphNode

_NOT_TEXTS = {*ON_LINKS, *ON_NODES, *ON_GRAPH} - {"name", "host"}


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
            network = nx.parse_graphml(text, force_multigraph=True)
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
