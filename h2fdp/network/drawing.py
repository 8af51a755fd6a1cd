"""A picture of a topology, in which trust shows without colour: shape, filling and line style say it too.

The cloud is in the middle, edge servers on a ring around it, those above them on rings between, devices in fans
outside. Trusted: a filled square and solid lines. Secure sums: a pale diamond and dash-dotted lines. Untrusted: a
hollow circle and dashed lines. Blue, green and orange are those of Okabe and Ito's palette, which colour-blind readers
tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from h2fdp.errors import UserError
from h2fdp.network.devices import Floats
from h2fdp.network.network import CLOUD, Aggregator, Subnet, Trust
from h2fdp.network.summary import headline, trust_words
from h2fdp.network.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
MOST_NAMED = 40  # edge servers; with more, names would meet, and trust and size order those under one node
MOST_VECTORS = 2000  # nodes; with more, they are pixels of an image in the SVG or PDF
INK, FAINT = "#222222", "#999999"
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class TrustStyle:
    """The look of nodes and links of one kind of trust; `device` fills the dots of devices."""

    trust: Trust
    colour: str
    fill: str
    marker: str
    line: Literal["-"] | tuple[float, tuple[float, ...]]
    device: str


STYLES = (  # in the order of legends
    TrustStyle("trusted", "#0072B2", "#0072B2", "s", "-", INK),
    TrustStyle("secure-sum", "#009E73", "#BFE7DC", "D", (0, (6, 1.5, 1, 1.5)), "#BFE7DC"),
    TrustStyle("relay", "#CC79A7", "#F2DCE8", ">", (0, (1, 1.5)), "#F2DCE8"),
    TrustStyle("untrusted", "#D55E00", "#FFFFFF", "o", (0, (4, 2)), "#FFFFFF"),
)


@dataclass(frozen=True)
class Layout:
    """Positions in a picture whose ring of edge servers has radius 1.

    Attributes:
        servers: (2,) the position of every edge server of every tier, by name; of the cloud under None.
        devices: (s, 2) those of the devices of each lowest edge server, by its name.
    """

    servers: dict[str | None, Floats]
    devices: dict[str, Floats]


def draw(topology: Topology, path: str | Path | None = None, width_in: float = 6.5, *, narrow: bool = False) -> Figure:
    """Draw the network, a device's distance to its edge server to scale; write it where a path is given.

    Args:
        topology: the network.
        path: a file that ends in .png, .svg or .pdf; None to write nothing.
        width_in: the picture's width in inches.
        narrow: the legend has one column, below the picture, with room for larger words.

    Raises:
        UserError: another suffix, or a place that cannot be written.
    """
    if path is not None and Path(path).suffix.lower() not in FORMATS:
        raise UserError(f"expected a name that ends in {', '.join(FORMATS)}", str(path))
    from matplotlib.figure import Figure  # 0.3 s, for those who draw

    figure = Figure(figsize=(width_in, width_in * 1.08))
    axes = figure.add_axes((0.02, 0.1, 0.96, 0.82))
    axes.set_aspect("equal")
    axes.axis("off")
    title: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
    figure.text(0.5, 0.965, topology.name, fontsize=12, weight="bold", parse_math=False, **title)
    figure.text(0.5, 0.93, headline(topology), fontsize=9.5, **title)
    layout = arrange(topology)
    for style in STYLES:
        _draw_nodes(axes, topology, layout, style)
    if topology.edges + len(topology.aggregators) <= MOST_NAMED:
        _draw_names(axes, topology, layout)
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": INK, "linewidth": 1.4}
    x, y = layout.servers[None]
    cloud = "cloud" if topology.cloud_trust == "untrusted" else f"cloud\n{topology.cloud_trust}"
    axes.text(x, y, cloud, ha="center", va="center", fontsize=9.5, color=INK, zorder=6, bbox=box)
    axes.margins(0.04)
    _legend(figure, topology, narrow)
    if path is not None:
        try:
            figure.savefig(path, dpi=200)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", str(path)) from None
    return figure


def nodes_of(topology: Topology, trust: Trust) -> tuple[list[Subnet | Aggregator], list[Subnet]]:
    """The edge servers of one level of trust in the order in which they are drawn, and those that have devices."""
    servers = [server for server in topology.servers() if server.trust == trust]
    return servers, [server for server in servers if isinstance(server, Subnet)]


def arrange(topology: Topology) -> Layout:
    """A layout in which a device's distance to its edge server is to scale (plus a gap that keeps dots apart)."""
    subnets, count = _around(topology), topology.edges
    start = np.pi if count == 2 else np.pi / 2  # two stand side by side, more begin at the top
    angles = start - 2 * np.pi * np.arange(count) / count
    edges, cloud = _direction(angles), np.zeros(2)
    span = 2 * np.pi / count * 1.15
    if count == 1:  # the cloud above, the devices all around but there
        edges, angles, cloud = np.zeros((1, 2)), np.array([-np.pi / 2]), np.array([0.0, 1.05])
        span = 2 * np.pi * 0.82
    elif count <= 3:
        span = np.pi * 1.1
    reach = 1.0 if count <= 12 else 12 / count + 0.25
    farthest = max(float(subnet.column("distance_m").max()) for subnet in subnets)
    servers: dict[str | None, Floats] = {None: cloud}
    devices = {}
    for edge, angle, subnet in zip(edges, angles, subnets, strict=True):
        servers[subnet.name] = edge
        radii = 0.22 + reach * subnet.column("distance_m") / farthest * 0.78
        devices[subnet.name] = edge + _fan(angle, span, subnet.size) * radii[:, None]
    for aggregator in topology.aggregators:
        share = 0.85 * (topology.depth + 1 - topology.height(aggregator.name)) / topology.depth  # their links are short
        below = topology.below(aggregator.name)
        outside = _direction(angles[below.start : below.stop].mean(keepdims=True))[0] if count > 1 else edges[0]
        servers[aggregator.name] = cloud + share * (outside - cloud)
    return Layout(servers, devices)


def _around(topology: Topology) -> list[Subnet]:
    """The lowest edge servers along the ring: as they are or, of many, by trust and size under each node above."""
    if topology.edges <= MOST_NAMED:
        return list(topology.subnets)
    trusts = [style.trust for style in STYLES]
    siblings = (list(group) for _, group in groupby(topology.subnets, key=lambda subnet: subnet.parent))
    return [each for group in siblings for each in sorted(group, key=lambda at: (trusts.index(at.trust), -at.size))]


def _fan(middle: float, span: float, size: int) -> Floats:
    """(size, 2) unit vectors spread evenly over a fan; neighbours in the list stand apart for legibility."""
    if size == 1:
        return _direction(np.array([middle]))
    order = np.argsort(np.argsort((np.arange(size) * _GOLDEN) % 1.0))
    return _direction(middle + span * (order / (size - 1) - 0.5))


def _direction(angles: Floats) -> Floats:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _draw_nodes(axes: Axes, topology: Topology, layout: Layout, style: TrustStyle) -> None:
    """Links, devices and edge servers of one level; `gid` names each set of markers in an SVG."""
    servers, subnets = nodes_of(topology, style.trust)
    if not servers:
        return
    count = topology.edges + len(topology.aggregators)
    dot = float(np.clip(55 / np.sqrt(max(topology.devices, 12 * topology.edges)), 0.5, 5))
    square = float(np.clip(460 / count, 1, 12))
    pixels = count + topology.devices > MOST_VECTORS
    line: dict[str, Any] = {"linestyle": "-" if pixels else style.line, "rasterized": pixels}
    links = [] if pixels else [(layout.servers[each.name], at) for each in subnets for at in layout.devices[each.name]]
    wires = [(layout.servers[each.parent], layout.servers[each.name]) for each in servers]
    thin = min(0.15 * square, 100 / count)
    for ends, colour, width in ((links, FAINT, dot / 8), (wires, style.colour, thin)):
        if ends:
            path = np.array([(*start, *end, np.nan, np.nan) for start, end in ends]).reshape(-1, 2)
            axes.plot(*path.T, color=colour, linewidth=width, zorder=1, clip_on=False, **line)
    places = [layout.servers[each.name] for each in servers]
    dots = [at for each in subnets for at in layout.devices[each.name]]
    look = (style.fill, style.colour) if pixels else (style.device, INK)  # ink is of one theme
    _mark(axes, dots, f"devices-{style.trust}", "o", dot, *look, 3, pixels)
    _mark(axes, places, f"servers-{style.trust}", style.marker, square, style.fill, style.colour, 4, pixels)


def _mark(
    axes: Axes, places: Sequence[Floats], gid: str, marker: str, size: float, fill: str, edge: str, z: int, pixels: bool
) -> None:
    if places:
        axes.plot(
            *np.array(places).T, linestyle="", marker=marker, markersize=size, markerfacecolor=fill,
            markeredgecolor=edge, markeredgewidth=0.18 * size, zorder=z, gid=gid, rasterized=pixels, clip_on=False,
        )  # fmt: skip


def _draw_names(axes: Axes, topology: Topology, layout: Layout) -> None:
    """Draw each edge server's name on its link to the node above; along the link where level names would meet."""
    behind = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    deep = topology.depth > 1
    for server in topology.servers():
        if server.name == CLOUD:  # a star's own edge server stands for the cloud itself
            continue
        at, above = layout.servers[server.name], layout.servers[server.parent]
        x, y = at - (at - above) * (0.26 if not deep else 0.36 if server.parent is None else 0.5)
        slope = float(np.degrees(np.arctan2(*(at - above)[::-1])))
        axes.text(
            x, y, server.name if len(server.name) <= 14 else f"{server.name[:12]}…", ha="center", va="center",
            rotation=(slope + 90) % 180 - 90 if deep or topology.edges > 12 else 0.0, fontsize=6.5 if deep else 8,
            color=INK, zorder=5, parse_math=False, bbox=behind,
        )  # fmt: skip


def _legend(figure: Figure, topology: Topology, narrow: bool) -> None:
    from matplotlib.lines import Line2D

    used = {server.trust for server in topology.servers()}
    styles = [style for style in STYLES if style.trust in used]
    words = trust_words(topology)
    handles = [
        Line2D(
            [], [], linestyle=style.line, color=style.colour, marker=style.marker, linewidth=1.8, markersize=9,
            markerfacecolor=style.fill, markeredgecolor=style.colour, markeredgewidth=2,
            label=f"{style.trust} edge server: {words[style.trust]}",
        )
        for style in styles
    ]  # fmt: skip
    handles += [
        Line2D(
            [], [], linestyle="", marker="o", markersize=5, markeredgecolor=INK, markerfacecolor=style.device,
            label=f"devices below: {style.trust}",
        )
        for style in styles
    ]  # fmt: skip
    place: dict[str, Any] = {"bbox_to_anchor": (0.1, 0.02), "ncol": 1} if narrow else {"ncol": 2}
    place["loc"] = "upper left" if narrow else "lower center"
    figure.legend(handles=handles, fontsize=7.5, frameon=False, handlelength=3.2, labelcolor=INK, **place)
