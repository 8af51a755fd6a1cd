"""What pictures share: where nodes stand and how they look.

The cloud is in the middle, edge servers on a ring around it, those above them on rings between, devices in fans
outside. Trusted: a filled square and solid lines. Secure sums: a pale diamond and dash-dotted lines. Untrusted: a
hollow circle and dashed lines. Blue, green and orange are those of Okabe and Ito's palette, which colour-blind readers
tell apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from h2fdp.topology.network import Floats
from h2fdp.topology.topology import Topology
from h2fdp.topology.trust import Trust

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_EDGES_DRAWN = 24
MOST_DEVICES_DRAWN = 400
MOST_LEVEL_NAMES = 12
INK = "#222222"
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Layout:
    """Positions in a picture whose ring of edge servers has radius 1.

    Attributes:
        cloud: (2,) the cloud's position.
        edges: (N, 2) the lowest edge servers' positions.
        devices: for each edge server, (s, 2) its devices' positions.
        servers: the position of every edge server of every tier, by name.
        above: the position of the node above each, by name.
    """

    cloud: Floats
    edges: Floats
    devices: list[Floats]
    servers: dict[str, Floats]
    above: dict[str, Floats]


def fits(topology: Topology) -> bool:
    """Whether every device can have a dot of its own."""
    return topology.edges <= MOST_EDGES_DRAWN and topology.devices <= MOST_DEVICES_DRAWN


def arrange(topology: Topology) -> Layout:
    """A layout in which a device's distance to its edge server is to scale (plus a gap that keeps dots apart)."""
    count = topology.edges
    start = np.pi if count == 2 else np.pi / 2  # two stand side by side, more begin at the top
    angles = start - 2 * np.pi * np.arange(count) / count
    edges = _direction(angles)
    cloud = np.zeros(2)
    span = 2 * np.pi / count * 1.15
    if count == 1:  # the cloud above, the devices all around but there
        edges, angles, cloud = np.zeros((1, 2)), np.array([-np.pi / 2]), np.array([0.0, 1.05])
        span = 2 * np.pi * 0.82
    elif count <= 3:
        span = np.pi * 1.1
    reach = 1.0 if count <= 12 else 12 / count + 0.25
    farthest = max(float(subnet.distance_m.max()) for subnet in topology.subnets)
    devices = [
        edge + _fan(angle, span, subnet.size) * (0.22 + reach * subnet.distance_m / farthest * 0.78)[:, None]
        for edge, angle, subnet in zip(edges, angles, topology.subnets, strict=True)
    ]
    servers = {subnet.name: edge for subnet, edge in zip(topology.subnets, edges, strict=True)}
    for aggregator in topology.aggregators:
        share = 0.85 * (topology.depth + 1 - topology.height(aggregator.name)) / topology.depth  # their links are short
        below = topology.below(aggregator.name)
        outside = _direction(angles[below.start : below.stop].mean(keepdims=True))[0] if count > 1 else edges[0]
        servers[aggregator.name] = cloud + share * (outside - cloud)
    above = {each.name: cloud if each.parent is None else servers[each.parent] for each in topology.servers()}
    return Layout(cloud, edges, devices, servers, above)


def label_of_server(layout: Layout, name: str) -> tuple[float, float, float]:
    """Where an edge server's name stands on its link to the node above: x, y, and the degrees that it is turned.

    Names are written along the links where level ones would meet.
    """
    server, above = layout.servers[name], layout.above[name]
    deep = len(layout.servers) > len(layout.edges)
    beside_cloud = bool(
        (above == layout.cloud).all()
    )  # whose mark would cover what stands in the middle of a short link
    x, y = server - (server - above) * (0.26 if not deep else 0.36 if beside_cloud else 0.5)
    slope = float(np.degrees(np.arctan2(*(server - above)[::-1])))
    turned = (slope + 90) % 180 - 90 if deep or len(layout.edges) > MOST_LEVEL_NAMES else 0.0
    return float(x), float(y), turned


def shortened(name: str) -> str:
    """A name that fits into a picture."""
    return name if len(name) <= 14 else f"{name[:12]}…"


def _fan(middle: float, span: float, size: int) -> Floats:
    """(size, 2) unit vectors spread evenly over a fan; neighbours in the list stand apart for legibility."""
    if size == 1:
        return _direction(np.array([middle]))
    order = np.argsort(np.argsort((np.arange(size) * _GOLDEN) % 1.0))
    return _direction(middle + span * (order / (size - 1) - 0.5))


def _direction(angles: Floats) -> Floats:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def trust_words(topology: Topology) -> dict[Trust, str]:
    """What trust means for the noise, for a legend."""
    if topology.aggregators:
        return {
            "trusted": "noise is added where trust ends, at it or above",
            "secure-sum": "it sees a sum, noisy already",
            "untrusted": "what reaches it is noisy already",
        }
    return {
        "trusted": "the edge server adds the noise",
        "secure-sum": "devices share one noise, it sees their sum",
        "untrusted": "every device adds noise",
    }


def trust_counts(topology: Topology) -> str:
    """How many edge servers of all tiers there are of each level above untrusted, as in "3 trusted"."""
    counts = Counter(server.trust for server in topology.servers())
    secure = f", {counts['secure-sum']:,} with secure sums" if counts["secure-sum"] else ""
    return f"{counts['trusted']:,} trusted{secure}"


@dataclass(frozen=True)
class TrustStyle:
    """How nodes and links of one kind of trust look; `device` fills the dots of devices."""

    word: Trust
    colour: str
    fill: str
    marker: str
    line: Literal["-"] | tuple[float, tuple[float, ...]]
    hatch: str
    device: str


TRUSTED = TrustStyle("trusted", "#0072B2", "#0072B2", "s", "-", "", INK)
SECURE_SUM = TrustStyle("secure-sum", "#009E73", "#BFE7DC", "D", (0, (6, 1.5, 1, 1.5)), "....", "#BBBBBB")
UNTRUSTED = TrustStyle("untrusted", "#D55E00", "white", "o", (0, (4, 2)), "/////", "white")
STYLES = (TRUSTED, SECURE_SUM, UNTRUSTED)  # in the order of legends


def look(trust: Trust) -> TrustStyle:
    """The look of a subnet."""
    return next(style for style in STYLES if style.word == trust)


def draw_cloud(axes: Axes, x: float, y: float, size: float = 9.5) -> None:
    """The cloud's node."""
    axes.text(
        x,
        y,
        "cloud",
        ha="center",
        va="center",
        fontsize=size,
        color=INK,
        zorder=6,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": INK, "linewidth": 1.4},
    )
