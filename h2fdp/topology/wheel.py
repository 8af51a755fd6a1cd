"""The picture of a large network: a wheel of edge servers with a bar outside for the devices of each.

Edge servers stand by trust, then by size, so the shares can be read at a glance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.topology.arrays import Floats
from h2fdp.topology.drawing import draw_cloud, look
from h2fdp.topology.network import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 240  # with more, bars are thinner than their outlines: the outline of all of them is drawn instead
_HUB = 0.3  # spokes begin outside the cloud's node, where they do not merge
_RIM = 1.0
_FOOT = 1.1
_LONGEST = 1.0


def draw_wheel(axes: Axes, topology: Topology) -> None:
    """Draw spokes, edge servers and bars."""
    sizes = topology.sizes
    trusted = np.array([subnet.trusted for subnet in topology.subnets])
    order = np.lexsort((-sizes, ~trusted))
    scale = _LONGEST / _round_up(int(sizes.max()))
    _rings(axes, _round_up(int(sizes.max())), scale)
    width = 2 * np.pi / len(order)
    for which in (True, False):
        positions = np.flatnonzero(trusted[order] == which)
        if len(positions) == 0:
            continue
        tops: Floats = np.asarray(_FOOT + scale * sizes[order[positions]], dtype=np.float64)
        starts: Floats = np.asarray(np.pi / 2 - width * positions, dtype=np.float64)
        if len(order) <= MOST_BARS:
            _bars(axes, which, starts, width, tops)
        else:
            _outline(axes, which, starts, width, tops)
    draw_cloud(axes, 0.0, 0.0)
    axes.set_xlim(-2.3, 2.3)
    axes.set_ylim(-2.3, 2.3)


def _bars(axes: Axes, trusted: bool, starts: Floats, width: float, tops: Floats) -> None:
    style = look(trusted)
    for start, top in zip(starts, tops, strict=True):
        middle = start - width / 2
        reach = np.array([_HUB, _RIM])
        axes.plot(
            reach * math.cos(middle),
            reach * math.sin(middle),
            linestyle=style.line,
            color=style.colour,
            linewidth=0.8,
            zorder=1,
        )
        x, y = _sector(np.array([start - 0.12 * width]), 0.76 * width, np.array([top]))
        axes.fill(x, y, facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=3)
    middles = starts - width / 2
    dot = float(np.clip(1800 * width / (2 * np.pi), 6, 60))
    axes.scatter(
        _RIM * np.cos(middles),
        _RIM * np.sin(middles),
        s=dot,
        marker=style.marker,
        facecolor=style.fill,
        edgecolor=style.colour,
        linewidth=1.2,
        zorder=4,
    )


def _outline(axes: Axes, trusted: bool, starts: Floats, width: float, tops: Floats) -> None:
    style = look(trusted)
    x, y = _sector(starts, width, tops)
    axes.fill(x, y, facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, linewidth=0.8, zorder=3)
    for angle in (starts[0], starts[-1] - width):
        axes.plot([0, _RIM * math.cos(angle)], [0, _RIM * math.sin(angle)], color="#BBBBBB", linewidth=0.8, zorder=1)
    middle = (starts[0] + starts[-1] - width) / 2
    axes.text(
        0.62 * math.cos(middle),
        0.62 * math.sin(middle),
        f"{len(starts):,}\n{style.word}",
        ha="center",
        va="center",
        fontsize=9,
        zorder=5,
    )


def _sector(starts: Floats, width: float, tops: Floats) -> tuple[Floats, Floats]:
    """The outline of adjoining bars from the foot to their tops, clockwise."""
    along = np.linspace(0.0, width, max(2, math.ceil(width / 0.02)))
    angles = (starts[:, None] - along[None]).ravel()
    radii = np.repeat(tops, len(along))
    angles = np.concatenate([angles, angles[::-1]])
    radii = np.concatenate([radii, np.full(len(radii), _FOOT)])
    return radii * np.cos(angles), radii * np.sin(angles)


def _rings(axes: Axes, largest: int, scale: float) -> None:
    """Circles that say how many devices a bar's length means."""
    around = np.linspace(0.0, 2 * np.pi, 361)
    for count in (largest // 2, largest) if largest > 1 else (largest,):
        radius = _FOOT + scale * count
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
