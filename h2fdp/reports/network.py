"""The network with its trust: the picture of the topology with details of every node, and a table."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from h2fdp.network import Aggregator, Subnet, Topology, draw
from h2fdp.network.drawing import FAINT, INK, MOST_NAMED, STYLES, nodes_of
from h2fdp.network.links import OwnLink, Wire
from h2fdp.network.network import COLUMNS
from h2fdp.network.summary import headline, summarise
from h2fdp.reports.figures import Drawing, ReportSection, Table, number
from h2fdp.reports.run_view import RunView
from h2fdp.wording import counted

MOST_DRAWN = 4  # different networks; of the others there is a row in the table
_COUNTS = {"edges": "edge servers", "trusted": "trusted", "secure_sum": "secure sums", "devices": "devices"}
_DISTANCES = {"lowest": "distance (m), lowest", "median": "median", "highest": "highest"}
_HEADS = ("runs", "name", *_COUNTS.values(), *_DISTANCES.values())


def network(runs: Sequence[RunView]) -> ReportSection:
    """A drawing for each different network, and what is in it."""
    groups = networks_of(runs)
    figures = [drawing(at, topology, users) for at, (topology, users) in enumerate(groups[:MOST_DRAWN])]
    table = Table(_HEADS, [_row(topology, users) for topology, users in groups])
    return ReportSection("network", "Network", "", figures, {"Networks in numbers": table})


def networks_of(runs: Sequence[RunView]) -> list[tuple[Topology, list[RunView]]]:
    """The different networks, each with the runs that used it."""
    groups: list[tuple[Topology, list[RunView]]] = []
    for run in runs:
        users = next((users for topology, users in groups if topology == run.topology), None)
        if users is None:
            groups.append((run.topology, users := []))
        users.append(run)
    return groups


def drawing(at: int, topology: Topology, users: Sequence[RunView]) -> Drawing:
    """The picture of one network.

    Args:
        at: its number in the report.
        users: the runs that it belongs to; a single one's devices show their accuracy.
    """
    caption = f"{headline(topology)}. Distances between devices and their edge servers are to scale."
    if topology.edges > MOST_NAMED:
        caption += " Edge servers stand by trust and size."
    if users[0].setting("method", "topology") == "star":
        caption += " The method is a star: the cloud's own edge server stands for the tree that the file describes."
    alone = users[0].devices if len(users) == 1 else {}
    accuracy = dict(zip(alone.get("device", []), alone.get("accuracy", []), strict="accuracy" in alone))
    title = f"{topology.name} ({', '.join(run.name for run in users)})" if len(users) > 1 else topology.name
    return Drawing(f"network-{at}", f"Network {title}", caption, _svg(at, topology, accuracy))


def _svg(at: int, topology: Topology, accuracy: Mapping[str, float]) -> str:
    """The picture as an element of the page: its colours are the theme's, each node has a title."""
    from matplotlib import rc_context

    figure, file = draw(topology, narrow=True), io.StringIO()
    for text in list(figure.texts):  # the page says it
        text.remove()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": f"network-{at}"}):
        figure.savefig(file, format="svg", dpi=150, transparent=True, bbox_inches="tight", metadata=nothing)
    svg = file.getvalue()
    svg = re.sub(r"<style.*?</style>|<!--.*?-->|font-family: [^;\"]*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*(viewBox="[^"]*")[^>]*>', r"<svg \1>", svg, count=1)
    colours = {INK: "ink", FAINT: "faint", "#FFFFFF": "card", "#BFE7DC": "grid", "#F2DCE8": "grid"}
    colours |= {style.colour: style.trust.replace("-", "_") for style in STYLES}
    for colour, name in colours.items():
        svg = svg.replace(colour.lower(), f"var(--{name})")
    for style in STYLES:
        servers, subnets = nodes_of(topology, style.trust)
        svg = _titled(svg, f"servers-{style.trust}", [_server_words(topology, server) for server in servers])
        rows = [(subnet, row) for subnet in subnets for row in range(subnet.size)]
        svg = _titled(svg, f"devices-{style.trust}", [_device_words(*each, accuracy) for each in rows])
    return re.sub(r' id="\w+[-_][^"]*"', "", svg)  # those of groups, which another picture has too


def _titled(svg: str, group: str, titles: Sequence[str]) -> str:
    """Each mark of a group with its title; an image of very many has none."""
    begin = svg.find(f'<g id="{group}">')
    if begin < 0:
        return svg
    end, words = svg.index("</g>", begin), iter(titles)
    marks = re.sub(
        r"<use ([^>]*)/>", lambda mark: f"<use {mark[1]}><title>{escape(next(words))}</title></use>", svg[begin:end]
    )
    return svg[:begin] + marks + svg[end:]


def _device_words(subnet: Subnet, row: int, accuracy: Mapping[str, float]) -> str:
    name = subnet.device_name(row)
    numbers = ", ".join(f"{number(values[row])} {COLUMNS[key].unit}" for key, values in subnet.columns.items())
    words = f"{name}: {numbers}"
    value = accuracy.get(name)
    return words if value is None else f"{words}, final accuracy {number(value)}"


def _server_words(topology: Topology, server: Subnet | Aggregator) -> str:
    children = len(topology.children(server.name))
    below = counted(server.size, "device") if isinstance(server, Subnet) else counted(children, "edge server")
    words = f"{server.name}: {server.trust}, {below}"
    if isinstance(link := server.link, Wire):
        return words if np.isinf(link.rate_bps) else f"{words}, {number(link.rate_bps / 1e6)} Mbit/s"
    return f"{words}, {link.part.name.rpartition('/')[2]}" if isinstance(link, OwnLink) else words


def _row(topology: Topology, users: Sequence[RunView]) -> list[Any]:
    facts = summarise(topology)
    numbers = [*(facts[key] for key in _COUNTS), *(facts["distance_m"][key] for key in _DISTANCES)]
    return [", ".join(run.name for run in users), facts["name"], *numbers]
