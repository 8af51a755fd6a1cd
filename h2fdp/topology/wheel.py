"""The picture of a large network: a wheel of edge servers with a bar outside for the devices of each.

Edge servers stand by trust, then by size, so the shares can be read at a glance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.topology.arrays import Floats, Integers
from h2fdp.topology.picture import draw_cloud, look
from h2fdp.topology.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 240  # with more, bars are thinner than their outlines: the outline of all of them is drawn instead
HUB = 0.3  # spokes begin outside the cloud's node, where they do not merge
RIM = 1.0
_FOOT = 1.1
_LONGEST = 1.0


@dataclass(frozen=True)
class Part:
    """The edge servers of one kind of trust, clockwise.

    Attributes:
        numbers: (n,) their numbers in the topology.
        starts: (n,) angles at which their sectors begin.
        width: the angle of a sector.
        tops: (n,) radii at which their bars end.
    """

    trusted: bool
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


def parts(topology: Topology) -> list[Part]:
    """The wheel's parts: trusted, then untrusted edge servers, the largest first."""
    sizes = topology.sizes
    trusted = np.array([subnet.trusted for subnet in topology.subnets])
    order = np.lexsort((-sizes, ~trusted))
    width = 2 * np.pi / len(order)
    found = []
    for which in (True, False):
        positions = np.flatnonzero(trusted[order] == which)
        if len(positions) > 0:
            numbers = order[positions]
            starts: Floats = np.asarray(np.pi / 2 - width * positions, dtype=np.float64)
            found.append(Part(which, numbers, starts, width, _radius(topology, sizes[numbers])))
    return found


def _radius(topology: Topology, sizes: Integers) -> Floats:
    """Where bars for so many devices end."""
    return np.asarray(_FOOT + _LONGEST * sizes / _round_up(int(topology.sizes.max())), dtype=np.float64)


def draw_wheel(axes: Axes, topology: Topology) -> None:
    """Draw spokes, edge servers and bars."""
    _rings(axes, topology)
    for part in parts(topology):
        if topology.edges <= MOST_BARS:
            _bars(axes, part)
        else:
            _outline(axes, part)
    draw_cloud(axes, 0.0, 0.0)
    axes.set_xlim(-2.3, 2.3)
    axes.set_ylim(-2.3, 2.3)


def _bars(axes: Axes, part: Part) -> None:
    style = look(part.trusted)
    reach = np.array([HUB, RIM])
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


def _outline(axes: Axes, part: Part) -> None:
    style = look(part.trusted)
    axes.fill(*part.outline(), facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=3)
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
