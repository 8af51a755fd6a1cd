"""A picture of a topology, in which trust shows without colour: shape, filling and line style say it too.

Trusted: a filled square and solid lines. Secure sums: a pale diamond and dash-dotted lines. Untrusted: a hollow circle
and dashed lines. Blue, green and orange are those of Okabe and Ito's palette, which colour-blind readers tell apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.errors import UserError
from h2fdp.topology.network import Floats
from h2fdp.topology.picture import (
    INK,
    STYLES,
    TrustStyle,
    arrange,
    draw_cloud,
    fits,
    label_of_server,
    look,
    shortened,
    trust_counts,
    trust_words,
)
from h2fdp.topology.topology import Topology
from h2fdp.topology.wheel import draw_wheel
from h2fdp.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def draw(topology: Topology, path: str | Path | None = None, width_in: float = 6.5) -> Figure:
    """Draw the network; write it where a path is given.

    Small networks show every device, its distance to scale; larger ones a bar for the devices of each edge server.

    Args:
        topology: the network.
        path: a file that ends in .png, .svg or .pdf; None to write nothing.
        width_in: the picture's width in inches.

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
    every = list(topology.servers())
    servers = counted(len(every), "edge server")
    servers += f" in {topology.depth} tiers" if topology.depth > 1 else ""
    figure.text(
        0.5, 0.965, topology.name, ha="center", va="center", fontsize=12, color=INK, weight="bold", parse_math=False
    )
    figure.text(
        0.5,
        0.93,
        f"{servers}, {trust_counts(topology)}; {topology.devices:,} devices",
        ha="center",
        va="center",
        fontsize=9.5,
        color=INK,
    )
    if fits(topology):
        _draw_every_device(axes, topology)
    else:
        draw_wheel(axes, topology)
    _legend(figure, topology)
    if path is not None:
        try:
            figure.savefig(path, dpi=200)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", str(path)) from None
    return figure


def _draw_every_device(axes: Axes, topology: Topology) -> None:
    layout = arrange(topology)
    crowd = max(topology.devices, 12 * topology.edges)
    dot = float(np.clip(30 - crowd / 12, 7, 26))
    for subnet, edge, devices in zip(topology.subnets, layout.edges, layout.devices, strict=True):
        style = look(subnet.trust)
        for device in devices:
            _line(axes, edge, device, style, "#999999", 0.6)
        axes.scatter(
            devices[:, 0],
            devices[:, 1],
            s=dot,
            marker="o",
            facecolor=style.device,
            edgecolor=INK,
            linewidth=0.8,
            zorder=3,
        )
    for server in topology.servers():
        style = look(server.trust)
        x, y = layout.servers[server.name]
        _line(axes, layout.above[server.name], layout.servers[server.name], style, style.colour, 1.8)
        axes.scatter(
            [x],
            [y],
            s=150,
            marker=style.marker,
            facecolor=style.fill,
            edgecolor=style.colour,
            linewidth=2.2,
            zorder=4,
        )
        _name(axes, server.name, *label_of_server(layout, server.name), size=8 if topology.depth == 1 else 6.5)
    draw_cloud(axes, *layout.cloud)
    axes.margins(0.04)


def _line(axes: Axes, start: Floats, end: Floats, style: TrustStyle, colour: str, width: float) -> None:
    axes.plot([start[0], end[0]], [start[1], end[1]], linestyle=style.line, color=colour, linewidth=width, zorder=1)


def _name(axes: Axes, name: str, x: float, y: float, turned: float, size: float) -> None:
    behind = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    axes.text(
        x,
        y,
        shortened(name),
        ha="center",
        va="center",
        rotation=turned,
        fontsize=size,
        color=INK,
        zorder=5,
        parse_math=False,
        bbox=behind,
    )


def _legend(figure: Figure, topology: Topology) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    every_device = fits(topology)
    found = {server.trust for server in topology.servers()}
    styles = [style for style in STYLES if style.word in found]
    handles: list[Line2D | Patch] = []
    for style in styles:
        who = trust_words(topology)[style.word]
        handles.append(
            Line2D(
                [],
                [],
                linestyle=style.line,
                color=style.colour,
                marker=style.marker,
                linewidth=1.8,
                markersize=9,
                markerfacecolor=style.fill,
                markeredgecolor=style.colour,
                markeredgewidth=2,
                label=f"{style.word} edge server: {who}",
            )
        )
    for style in styles:
        label = f"{'devices' if every_device else 'number of devices'} below: {style.word}"
        if every_device:
            handles.append(
                Line2D(
                    [],
                    [],
                    linestyle="",
                    marker="o",
                    markersize=5,
                    markeredgecolor=INK,
                    label=label,
                    markerfacecolor=style.device,
                )
            )
        else:
            handles.append(Patch(facecolor=style.fill, edgecolor=style.colour, hatch=style.hatch, label=label))
    figure.legend(
        handles=handles,
        loc="lower center",
        ncol=2,
        fontsize=7.5,
        frameon=False,
        handlelength=3.2,
        borderaxespad=0.6,
        columnspacing=1.6,
        labelspacing=0.8,
    )
