"""Read a topology: YAML, GraphML or node-link JSON, by the suffix of the file."""

from __future__ import annotations

import re
from pathlib import Path

from h2fdp.config import Document, check, read_document
from h2fdp.errors import Problem, UserError
from h2fdp.topology.graph_files import read_graphml, read_node_link
from h2fdp.topology.graph_import import tree_document
from h2fdp.topology.naming import name_problems
from h2fdp.topology.schema import TopologyFile
from h2fdp.topology.templates import expand
from h2fdp.topology.topology import Topology
from h2fdp.topology.trust import TrustSection

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
    if kind == "yaml":
        document = read_document(path)
    else:
        document = tree_document(read_graphml(path) if kind == "graphml" else read_node_link(path))
    assert isinstance(document.root.content, dict)
    if "name" not in document.root.content:
        document.set("name", path.stem, str(path))
    return from_document(document, seed)


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
    return Topology.drawn(expand(file, seed))


def _idle_probability(document: Document, file: TopologyFile) -> list[Problem]:
    """A probability set from outside a file in which every edge server states its trust would be ignored in silence."""
    if file.trust is None or any(edge.stated_trust is None for edge in file.every_edge()):
        return []
    paths = [("trust", key) for key in ("probability", "trusted", "secure-sum") if _stated(file.trust, key)]
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


def _stated(section: TrustSection, key: str) -> bool:
    return key.replace("-", "_") in section.model_fields_set


def _source(document: Document, path: tuple[str, ...]) -> str:
    """The file, or the command line, that states a key."""
    return re.sub(r":\d+$", "", document.where(path))


def _line(problem: Problem) -> float:
    match = re.search(r":(\d+)$", problem.where)
    return int(match.group(1)) if match else float("inf")
