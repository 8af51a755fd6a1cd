"""Write a topology as it was drawn; reading the file gives an equal topology whatever the seed."""

from __future__ import annotations

from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.topology.graph_text import graphml_text, node_link_text
from h2fdp.topology.network import Topology
from h2fdp.topology.reading import format_of
from h2fdp.topology.yaml_text import yaml_text


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
