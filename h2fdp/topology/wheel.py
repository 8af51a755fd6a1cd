"""The picture of a large network: a wheel of edge servers with a bar outside for the devices of each.

Edge servers stand by trust, then by size, so the shares can be read at a glance. In a tree of more tiers they do so
under each of the servers above them, which are rings inside the wheel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.topology.network import Floats, Integers
from h2fdp.topology.picture import STYLES, draw_cloud, look
from h2fdp.topology.topology import Topology
from h2fdp.topology.trust import Trust

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 240  # with more, bars are thinner than their outlines: the outline of all of them is drawn instead
HUB = 0.3  # spokes begin outside the cloud's node, where they do not merge
RIM = 1.0
_FOOT = 1.1
_LONGEST = 1.0


@dataclass(frozen=True)
class TrustSector:
    """The edge servers of one kind of trust, clockwise.

    Attributes:
        numbers: (n,) their numbers in the topology.
        starts: (n,) angles at which their sectors begin.
        width: the angle of a sector.
        tops: (n,) radii at which their bars end.
    """

    trust: Trust
    numbers: Integers
    starts: Floats
    width: float
    tops: Floats

    @property
    def middles(self) -> Floats:
        """(n,) the angles of the bars."""
        return self.starts - self.width / 2

    @property
    def ends(self) -> tuple[float, float]:
        """The angles at which the part begins and ends."""
        return float(self.starts[0]), float(self.starts[-1] - self.width)

    def bars(self) -> list[tuple[Floats, Floats]]:
        """The outline of each bar; neighbours do not touch."""
        starts, stops = self.starts - 0.12 * self.width, self.starts - 0.88 * self.width
        return [_outline_of(starts[[at]], stops[[at]], self.tops[[at]]) for at in range(len(starts))]

    def outline(self) -> tuple[Floats, Floats]:
        """The outline of all bars together."""
        first = np.flatnonzero(np.diff(self.tops, prepend=np.nan) != 0)  # equal neighbours are one
        stops = np.append(self.starts[first[1:]], self.starts[-1] - self.width)
        return _outline_of(self.starts[first], stops, self.tops[first])


@dataclass(frozen=True)
class AggregatorArc:
    """An aggregator's piece of a ring inside the wheel.

    Attributes:
        name: of the aggregator.
        starts, stops: the angles at which it begins and ends, clockwise.
        inner, outer: the radii between which it lies.
    """

    name: str
    trust: Trust
    starts: float
    stops: float
    inner: float
    outer: float

    def outline(self) -> tuple[Floats, Floats]:
        """Its outline, with a gap to its neighbours."""
        gap = 0.04 * (self.starts - self.stops)
        around = np.linspace(self.starts - gap, self.stops + gap, max(2, math.ceil((self.starts - self.stops) / 0.02)))
        angles = np.concatenate([around, around[::-1]])
        radii = np.repeat([self.outer, self.inner], len(around))
        return radii * np.cos(angles), radii * np.sin(angles)


def parts(topology: Topology) -> list[TrustSector]:
    """The wheel's parts: the most trusted first, the largest first among equals, under each server above them."""
    sizes = topology.sizes
    levels = [style.word for style in STYLES]
    kinds = np.array([levels.index(subnet.trust) for subnet in topology.subnets])
    parents = _parents(topology)
    order = np.lexsort((-sizes, kinds, parents))
    width = 2 * np.pi / len(order)
    found = []
    for parent in np.unique(parents):
        for kind, which in enumerate(levels):
            positions = np.flatnonzero((kinds[order] == kind) & (parents[order] == parent))
            if len(positions) > 0:
                numbers = order[positions]
                starts: Floats = np.asarray(np.pi / 2 - width * positions, dtype=np.float64)
                found.append(TrustSector(which, numbers, starts, width, _radius(topology, sizes[numbers])))
    return found


def arcs(topology: Topology) -> list[AggregatorArc]:
    """The aggregators' pieces of the rings: the highest tier inside, each as wide as the edge servers below it."""
    width = 2 * np.pi / topology.edges
    thickness = (RIM - 0.12 - HUB) / max(1, topology.depth - 1)
    found = []
    for aggregator in topology.aggregators:
        below = topology.below(aggregator.name)
        outer = RIM - 0.12 - thickness * (topology.height(aggregator.name) - 2)
        starts, stops = (float(np.pi / 2 - width * edge) for edge in (below.start, below.stop))
        found.append(AggregatorArc(aggregator.name, aggregator.trust, starts, stops, outer - 0.7 * thickness, outer))
    return found


def _parents(topology: Topology) -> Integers:
    """(N,) which edge servers stand under the same node, numbered so that the order of the tree stays."""
    numbers: dict[tuple[str | None, int], int] = {}
    found = []
    run, before = 0, topology.subnets[0].parent
    for subnet in topology.subnets:
        run += subnet.parent != before
        before = subnet.parent
        found.append(numbers.setdefault((subnet.parent, run), len(numbers)))
    return np.array(found, dtype=np.int64)


def _radius(topology: Topology, sizes: Integers) -> Floats:
    """Where the bar for a number of devices ends."""
    return np.asarray(_FOOT + _LONGEST * sizes / _round_up(int(topology.sizes.max())), dtype=np.float64)


def draw_wheel(axes: Axes, topology: Topology) -> None:
    """Draw spokes, edge servers and bars."""
    _rings(axes, topology)
    inner = HUB if topology.depth == 1 else RIM - 0.12  # spokes end at the rings of a deeper tree
    for part in parts(topology):
        if topology.edges <= MOST_BARS:
            _bars(axes, part, inner)
        else:
            _outline(axes, part, spokes=topology.depth == 1)
    for arc in arcs(topology):
        style = look(arc.trust)
        axes.fill(
            *arc.outline(), facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=2
        )
    draw_cloud(axes, 0.0, 0.0)
    axes.set_xlim(-2.3, 2.3)
    axes.set_ylim(-2.3, 2.3)


def _bars(axes: Axes, part: TrustSector, inner: float) -> None:
    style = look(part.trust)
    reach = np.array([inner, RIM])
    for middle, (x, y) in zip(part.middles, part.bars(), strict=True):
        axes.plot(
            reach * math.cos(middle),
            reach * math.sin(middle),
            linestyle=style.line,
            color=style.colour,
            linewidth=0.8,
            zorder=1,
        )
        axes.fill(x, y, facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=3)
    dot = float(np.clip(1800 * part.width / (2 * np.pi), 6, 60))
    axes.scatter(
        RIM * np.cos(part.middles),
        RIM * np.sin(part.middles),
        s=dot,
        marker=style.marker,
        facecolor=style.fill,
        edgecolor=style.colour,
        linewidth=1.2,
        zorder=4,
    )


def _outline(axes: Axes, part: TrustSector, spokes: bool) -> None:
    style = look(part.trust)
    axes.fill(*part.outline(), facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=3)
    if not spokes:
        return
    for angle in part.ends:
        axes.plot([0, RIM * math.cos(angle)], [0, RIM * math.sin(angle)], color="#BBBBBB", linewidth=0.8, zorder=1)
    middle = sum(part.ends) / 2
    axes.text(
        0.62 * math.cos(middle),
        0.62 * math.sin(middle),
        f"{len(part.starts):,}\n{style.word}",
        ha="center",
        va="center",
        fontsize=9,
        zorder=5,
    )


def _outline_of(starts: Floats, stops: Floats, tops: Floats) -> tuple[Floats, Floats]:
    """The outline of adjoining bars from the foot to their tops, clockwise."""
    arcs = [
        np.linspace(start, stop, max(2, math.ceil((start - stop) / 0.02)))
        for start, stop in zip(starts, stops, strict=True)
    ]
    angles, radii = np.concatenate(arcs), np.repeat(tops, [len(arc) for arc in arcs])
    angles = np.concatenate([angles, angles[::-1]])
    radii = np.concatenate([radii, np.full(len(radii), _FOOT)])
    return radii * np.cos(angles), radii * np.sin(angles)


def circles(topology: Topology) -> list[tuple[int, float]]:
    """Numbers of devices, and the radii of the circles that say how long their bars are."""
    largest = _round_up(int(topology.sizes.max()))
    return [(count, float(_radius(topology, np.array(count)))) for count in (largest // 2, largest)]


def _rings(axes: Axes, topology: Topology) -> None:
    around = np.linspace(0.0, 2 * np.pi, 361)
    for count, radius in circles(topology):
        axes.plot(radius * np.cos(around), radius * np.sin(around), color="#BBBBBB", linewidth=0.5, zorder=0)
        axes.text(
            -0.06,
            radius,
            f"{count:,} devices",
            ha="right",
            va="center",
            fontsize=7,
            color="#444444",
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.9},
        )


def _round_up(value: int) -> int:
    """The next even number below ten, else the next number of one digit and zeros."""
    step = 2 if value < 10 else int("1" + "0" * (len(str(value)) - 1))
    return max(2, math.ceil(value / step) * step)
