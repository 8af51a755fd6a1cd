"""The network with its trust, as a drawing with details of every node, or a wheel of a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from h2fdp.reports.figures import Column, ReportSection, ShapeDrawing, Table, number
from h2fdp.reports.run_view import RunView
from h2fdp.topology import Aggregator, Subnet, Topology
from h2fdp.topology.network import CLOUD
from h2fdp.topology.picture import arrange, fits, label_of_server, shortened, trust_counts, trust_words
from h2fdp.topology.summary import summarise
from h2fdp.topology.trust import TRUSTS, Trust
from h2fdp.topology.wheel import MOST_BARS, RIM, TrustSector, arcs, circles, parts

MOST_DRAWN = 4  # different networks; of the others there is a row in the table
Label = tuple[float, float, str, float]
Shapes = tuple[list[dict[str, Any]], list[Label], tuple[float, float]]  # traces, labels, where the cloud stands
_LEGEND: Mapping[Trust, str] = {
    "trusted": "trusted edge server: it adds the noise",
    "secure-sum": "secure-sum edge server: devices share one noise, it sees their sum",
    "untrusted": "untrusted edge server: every device adds noise",
}
_SYMBOLS: Mapping[Trust, str] = {"trusted": "square", "secure-sum": "diamond", "untrusted": "circle"}
_DASHES: Mapping[Trust, str] = {"trusted": "solid", "secure-sum": "dashdot", "untrusted": "dash"}
_FILLS: Mapping[Trust, str] = {"trusted": "@trusted", "secure-sum": "@grid", "untrusted": "@card"}
_DOTS: Mapping[Trust, str] = {"trusted": "@ink", "secure-sum": "@grid", "untrusted": "@card"}  # of devices
_HEADS = (
    "runs",
    "name",
    "edge servers",
    "trusted",
    "secure sums",
    "devices",
    "distance (m), lowest",
    "median",
    "highest",
)


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
        same = next((group for topology, group in groups if topology == run.topology), None)
        if same is None:
            groups.append((run.topology, [run]))
        else:
            same.append(run)
    return groups


def drawing(at: int, topology: Topology, users: Sequence[RunView]) -> ShapeDrawing:
    """The picture of one network.

    Args:
        at: its number in the report.
        users: the runs that it belongs to; a single one's devices tell their accuracy.
    """
    accuracy = dict(zip(users[0].devices.get("device", []), users[0].devices.get("accuracy", []), strict=True))
    servers = list(topology.servers())
    kinds = [trust for trust in reversed(TRUSTS) if any(server.trust == trust for server in servers)]
    tiers = f" in {topology.depth} tiers" if topology.depth > 1 else ""
    what = (
        "Distances between devices and their edge servers are to scale."
        if fits(topology)
        else "A bar for the devices of each edge server, by trust and size; the circles say how many."
    )
    count = f"{_count(len(servers), 'edge server')}{tiers}, {trust_counts(topology)}"
    caption = (
        f"{count}; {_count(topology.devices, 'device')}. {what} "
        "Solid lines and squares are trusted, dashed lines and circles untrusted"
        f"{', dash-dotted lines and diamonds secure sums' if 'secure-sum' in kinds else ''}."
    )
    if topology.aggregators and not fits(topology):
        caption += " The rings inside are the tiers above, each piece as wide as the edge servers below it."
    star = users[0].setting("method", "topology") == "star"
    if star:
        caption += " The method is a star: the cloud's own edge server stands for the tree that the file describes."
    known = accuracy if len(users) == 1 else {}
    traces, labels, cloud = _every_device(topology, known) if fits(topology) else _wheel(topology)
    words = trust_words(topology)
    legends = {which: f"{which} edge server: {words[which]}" for which in kinds} if tiers else _LEGEND
    legend = [(_css(which), legends[which]) for which in kinds]
    title = f"{topology.name} ({', '.join(run.name for run in users)})" if len(users) > 1 else topology.name
    return ShapeDrawing(f"network-{at}", f"Network {title}", caption, traces, labels, cloud, legend)


def _every_device(topology: Topology, accuracy: Mapping[str, float]) -> Shapes:
    layout = arrange(topology)
    traces: list[dict[str, Any]] = []
    labels: list[Label] = []
    for trust in reversed(TRUSTS):
        numbers = [at for at, subnet in enumerate(topology.subnets) if subnet.trust == trust]
        servers = [server for server in topology.servers() if server.trust == trust]
        if not servers:
            continue
        wires = [(layout.above[server.name], layout.servers[server.name]) for server in servers]
        links = [(layout.edges[at], device) for at in numbers for device in layout.devices[at]]
        traces += [_lines(links, "@faint", 0.7, trust), _lines(wires, f"@{_css(trust)}", 2, trust)]
        devices = np.concatenate([np.zeros((0, 2)), *(layout.devices[at] for at in numbers)])
        words = [
            _device_words(topology.subnets[at], row, accuracy)
            for at in numbers
            for row in range(topology.subnets[at].size)
        ]
        dot = {"size": 7, "symbol": "circle", "color": _DOTS[trust], "line": _border("@ink", 1)}
        traces.append(_points(devices, words, dot))
        colour = f"@{_css(trust)}"
        square = {"size": 15, "symbol": _SYMBOLS[trust], "color": _FILLS[trust]}
        places = np.array([layout.servers[server.name] for server in servers])
        words = [_server_words(topology, server) for server in servers]
        traces.append(_points(places, words, square | {"line": _border(colour, 2.5)}))
    for server in topology.servers():
        if server.name == CLOUD:  # a star's own edge server stands for the cloud itself
            continue
        x, y, turned = label_of_server(layout, server.name)
        labels.append((x, y, shortened(server.name), turned))
    return traces, labels, (float(layout.cloud[0]), float(layout.cloud[1]))


def _wheel(topology: Topology) -> Shapes:
    around = np.linspace(0, 2 * np.pi, 181)
    traces: list[dict[str, Any]] = []
    labels: list[Label] = []
    for count, radius in circles(topology):
        circle = np.stack([radius * np.cos(around), radius * np.sin(around)], axis=1)
        traces.append(_line_trace(circle.tolist(), "@grid", 1, "solid"))
        labels.append((0.0, radius, f"{count:,} devices", 0.0))
    for part in parts(topology):
        outlines = part.bars() if topology.edges <= MOST_BARS else [part.outline()]
        traces.append(_filled(outlines, part.trust))
        if topology.edges <= MOST_BARS:
            traces.append(_rim(topology, part))
        elif not topology.aggregators:
            middle = sum(part.ends) / 2
            text = f"{len(part.starts):,} {part.trust}"
            labels.append((0.6 * float(np.cos(middle)), 0.6 * float(np.sin(middle)), text, 0.0))
    for trust in reversed(TRUSTS):
        outlines = [arc.outline() for arc in arcs(topology) if arc.trust == trust]
        if outlines:
            traces.append(_filled(outlines, trust))
    return traces, labels, (0.0, 0.0)


def _rim(topology: Topology, part: TrustSector) -> dict[str, Any]:
    marker = {
        "size": 7,
        "symbol": _SYMBOLS[part.trust],
        "color": _FILLS[part.trust],
        "line": _border(f"@{_css(part.trust)}", 1.5),
    }
    middles = np.stack([RIM * np.cos(part.middles), RIM * np.sin(part.middles)], axis=1)
    return _points(middles, [_server_words(topology, topology.subnets[at]) for at in part.numbers], marker)


def _filled(outlines: Sequence[tuple[Any, Any]], trust: Trust) -> dict[str, Any]:
    x: Column = []
    y: Column = []
    for outline_x, outline_y in outlines:
        x += [*outline_x.tolist(), None]
        y += [*outline_y.tolist(), None]
    colour = f"@{_css(trust)}"
    hatch = {"shape": "." if trust == "secure-sum" else "/", "fgcolor": colour, "size": 6}
    filling = {"fillcolor": colour} if trust == "trusted" else {"fillpattern": hatch}
    return {"x": x, "y": y, "mode": "lines", "fill": "toself", "line": {"color": colour, "width": 1}} | filling


def _lines(ends: Sequence[tuple[Any, Any]], colour: str, width: float, trust: Trust) -> dict[str, Any]:
    path: list[list[float | None]] = []
    for start, end in ends:
        path += [start.tolist(), end.tolist(), [None, None]]
    return _line_trace(path, colour, width, _DASHES[trust])


def _line_trace(path: Sequence[Sequence[float | None]], colour: str, width: float, dash: str) -> dict[str, Any]:
    line = {"color": colour, "width": width, "dash": dash}
    return {"x": [at[0] for at in path], "y": [at[1] for at in path], "mode": "lines", "line": line}


def _points(at: Any, words: list[str], marker: dict[str, Any]) -> dict[str, Any]:
    return {"x": at[:, 0].tolist(), "y": at[:, 1].tolist(), "mode": "markers", "text": words, "marker": marker}


def _border(colour: str, width: float) -> dict[str, Any]:
    return {"color": colour, "width": width}


def _device_words(subnet: Subnet, row: int, accuracy: Mapping[str, float]) -> str:
    name = subnet.device_name(row)
    words = f"<b>{escape(name)}</b><br>{number(subnet.distance_m[row])} m, {number(subnet.power_dbm[row])} dBm"
    value = accuracy.get(name)
    return words if value is None else f"{words}<br>final accuracy {number(value)}"


def _server_words(topology: Topology, server: Subnet | Aggregator) -> str:
    children = len(topology.children(server.name))
    held = _count(server.size, "device") if isinstance(server, Subnet) else _count(children, "edge server")
    words = f"<b>{escape(server.name)}</b><br>{server.trust}, {held}"
    return words if np.isinf(server.link.rate_bps) else f"{words}<br>{number(server.link.rate_bps / 1e6)} Mbit/s"


def _row(topology: Topology, users: Sequence[RunView]) -> list[Any]:
    facts = summarise(topology)
    distance = facts["distance_m"]
    return [
        ", ".join(run.name for run in users),
        *(facts[key] for key in ("name", "edges", "trusted", "secure_sum", "devices")),
        *(distance[key] for key in ("lowest", "median", "highest")),
    ]


def _css(trust: Trust) -> str:
    """The name of a level's colour, see `Theme`."""
    return trust.replace("-", "_")


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
