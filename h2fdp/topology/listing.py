"""A topology as a tree of text: a line for each edge server, in 80 columns and without need of colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2fdp.topology.network import Subnet, Topology

MOST_LINES = 40
FIRST_LINES = 12
_MOST_DOTS = 20
_LONGEST_NAME = 20


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
