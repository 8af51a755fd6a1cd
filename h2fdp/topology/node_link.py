"""Read node-link JSON, the form that networkx and many tools for graphs exchange."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from h2fdp.config import Document, Section, check, parse
from h2fdp.config.document import Node
from h2fdp.config.fields import Expect
from h2fdp.config.source import read_text
from h2fdp.errors import Problem, UserError
from h2fdp.topology.graph_import import Graph, GraphLink, GraphNode

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
