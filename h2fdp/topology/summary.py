"""A topology in few numbers and as a tree of text, 80 columns wide, which needs no colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from h2fdp.topology.network import Subnet
from h2fdp.topology.topology import Topology

MOST_LINES = 40
FIRST_LINES = 12
_MOST_DOTS = 20
_LONGEST_NAME = 20


def summarise(topology: Topology) -> dict[str, Any]:
    """Counts, sizes and distances (metres), ready for JSON.

    >>> summary = summarise(Topology.regular(edges=4, devices=5, trust=1.0, name="small"))
    >>> summary["edges"], summary["devices"], summary["trusted"], summary["subnet_size"]
    (4, 20, 4, {'lowest': 5, 'median': 5.0, 'highest': 5})
    """
    sizes = topology.sizes
    distances = np.concatenate([subnet.distance_m for subnet in topology.subnets])
    trusted = sum(subnet.trusted for subnet in topology.subnets)
    return {
        "name": topology.name,
        "edges": topology.edges,
        "devices": topology.devices,
        "trusted": trusted,
        "untrusted": topology.edges - trusted,
        "trust_probability": topology.trust_probability,
        "subnet_size": _range(sizes) | {"lowest": int(sizes.min()), "highest": int(sizes.max())},
        "distance_m": _range(distances),
    }


def summarise_subnet(subnet: Subnet) -> dict[str, Any]:
    """One edge server, ready for JSON; an unlimited rate is null."""
    return {
        "name": subnet.name,
        "trusted": subnet.trusted,
        "devices": subnet.size,
        "distance_m": _range(subnet.distance_m),
        "rate_mbps": subnet.link.rate_bps / 1e6 if np.isfinite(subnet.link.rate_bps) else None,
        "host": subnet.host,
    }


def _range(values: Any) -> dict[str, float]:
    return {"lowest": float(np.min(values)), "median": float(np.median(values)), "highest": float(np.max(values))}


@dataclass(frozen=True)
class Glyphs:
    """What the tree is made of."""

    trusted: str
    untrusted: str
    device: str
    noisy_device: str
    branch: str
    last: str
    more: str
    dash: str


UNICODE = Glyphs("■", "○", "•", "◦", "├── ", "└── ", "…", "–")
ASCII = Glyphs("#", "o", "*", ".", "|-- ", "`-- ", "..", "-")


@dataclass(frozen=True)
class Line:
    """A line of the tree, and the trust of the edge server it is about."""

    text: str
    trusted: bool | None = None


def listing(topology: Topology, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The tree; of a large network the two groups and the first edge servers.

    >>> for line in listing(Topology.regular(edges=2, devices=3, trust=1.0)):
    ...     print(line.text.rstrip())
    cloud
    ├── ■ edge-1  trusted    3 devices  30–73 m   •••
    └── ■ edge-2  trusted    3 devices  31–46 m   •••
    """
    if topology.edges <= MOST_LINES:
        return [Line("cloud"), *_tree(topology.subnets, topology.edges, glyphs)]
    groups = [
        _group([subnet for subnet in topology.subnets if subnet.trusted is trusted], trusted, glyphs)
        for trusted in (True, False)
    ]
    return [
        Line("cloud"),
        *(line for line in groups if line is not None),
        Line("first edge servers:"),
        *_tree(topology.subnets[:FIRST_LINES], topology.edges, glyphs),
    ]


def _tree(subnets: Sequence[Subnet], of: int, glyphs: Glyphs) -> list[Line]:
    names = [_short(subnet.name, glyphs) for subnet in subnets]
    width = max(map(len, names))
    digits = max(len(str(subnet.size)) for subnet in subnets)
    lines = []
    for position, (subnet, name) in enumerate(zip(subnets, names, strict=True), start=1):
        stem = glyphs.last if position == of else glyphs.branch
        symbol, word, dot = _signs(subnet.trusted, glyphs)
        dots = dot * min(subnet.size, _MOST_DOTS) + (glyphs.more if subnet.size > _MOST_DOTS else "")
        lines.append(
            Line(
                f"{stem}{symbol} {name:<{width}}  {word:<9}  {_devices(subnet.size, digits)}  "
                f"{_metres([subnet], glyphs):<8}  {dots}",
                subnet.trusted,
            )
        )
    if len(subnets) < of:
        lines.append(Line(f"{glyphs.last}{glyphs.more} {of - len(subnets):,} more (--json lists all)"))
    return lines


def _group(subnets: list[Subnet], trusted: bool, glyphs: Glyphs) -> Line | None:
    if not subnets:
        return None
    symbol, word, _ = _signs(trusted, glyphs)
    sizes = [subnet.size for subnet in subnets]
    spread = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)}{glyphs.dash}{max(sizes)}"
    return Line(
        f"{glyphs.branch}{symbol} {len(subnets):>6,} {word:<9} {sum(sizes):>9,} devices  {spread} each  "
        f"{_metres(subnets, glyphs)}",
        trusted,
    )


def _signs(trusted: bool, glyphs: Glyphs) -> tuple[str, str, str]:
    if trusted:
        return glyphs.trusted, "trusted", glyphs.device
    return glyphs.untrusted, "untrusted", glyphs.noisy_device


def _devices(size: int, digits: int) -> str:
    return f"{size:>{digits}} {'device ' if size == 1 else 'devices'}"


def _metres(subnets: Sequence[Subnet], glyphs: Glyphs) -> str:
    lowest = round(min(float(subnet.distance_m.min()) for subnet in subnets))
    highest = round(max(float(subnet.distance_m.max()) for subnet in subnets))
    return f"{lowest} m" if lowest == highest else f"{lowest}{glyphs.dash}{highest} m"


def _short(name: str, glyphs: Glyphs) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - len(glyphs.more)] + glyphs.more
