"""A topology in few numbers and as a tree of text, 80 columns wide, which needs no colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from h2fdp.topology.network import Aggregator, Subnet
from h2fdp.topology.topology import Topology
from h2fdp.topology.trust import TRUSTS, Trust

MOST_LINES = 40
FIRST_LINES = 12
_MOST_DOTS = 20
_LONGEST_NAME = 20
_WIDEST_TREE = 44


def summarise(topology: Topology) -> dict[str, Any]:
    """Counts, sizes and distances (metres), ready for JSON.

    `edges` and the levels of trust count the lowest edge servers. A network of more tiers has `tiers` too, from these
    up.

    >>> summary = summarise(Topology.regular(edges=4, devices=5, trust=1.0, name="small"))
    >>> summary["edges"], summary["devices"], summary["trusted"], summary["subnet_size"]
    (4, 20, 4, {'lowest': 5, 'median': 5.0, 'highest': 5})
    """
    sizes = topology.sizes
    distances = np.concatenate([subnet.distance_m for subnet in topology.subnets])
    tiers = [
        [each.trust for each in topology.servers() if topology.height(each.name) == height]
        for height in range(1, topology.depth + 1)
    ]
    deep = {"tiers": [{"edges": len(tier), **_levels(tier)} for tier in tiers]} if topology.depth > 1 else {}
    return {
        "name": topology.name,
        "edges": topology.edges,
        "devices": topology.devices,
        **_levels([subnet.trust for subnet in topology.subnets]),
        **deep,
        "trust_probability": topology.trust_probability,
        "secure_sum_probability": topology.secure_sum_probability,
        "subnet_size": _range(sizes) | {"lowest": int(sizes.min()), "highest": int(sizes.max())},
        "distance_m": _range(distances),
    }


def _levels(trust: Sequence[Trust]) -> dict[str, int]:
    """How many edge servers there are of each level of trust."""
    return {level.replace("-", "_"): trust.count(level) for level in reversed(TRUSTS)}


def summarise_subnet(subnet: Subnet) -> dict[str, Any]:
    """One edge server, ready for JSON; an unlimited rate is null."""
    return {
        "name": subnet.name,
        "trust": subnet.trust,
        "trusted": subnet.trusted,
        "devices": subnet.size,
        "distance_m": _range(subnet.distance_m),
        "rate_mbps": subnet.link.rate_bps / 1e6 if np.isfinite(subnet.link.rate_bps) else None,
        "host": subnet.host,
    } | ({} if subnet.parent is None else {"parent": subnet.parent})


def summarise_aggregator(topology: Topology, aggregator: Aggregator) -> dict[str, Any]:
    """One edge server above others, ready for JSON; an unlimited rate is null."""
    return {
        "name": aggregator.name,
        "trust": aggregator.trust,
        "trusted": aggregator.trusted,
        "height": topology.height(aggregator.name),
        "children": list(topology.children(aggregator.name)),
        "rate_mbps": aggregator.link.rate_bps / 1e6 if np.isfinite(aggregator.link.rate_bps) else None,
        "host": aggregator.host,
        "parent": aggregator.parent,
    }


def _range(values: Any) -> dict[str, float]:
    return {"lowest": float(np.min(values)), "median": float(np.median(values)), "highest": float(np.max(values))}


@dataclass(frozen=True)
class TreeGlyphs:
    """What the tree is made of."""

    trusted: str
    secure_sum: str
    untrusted: str
    device: str
    noisy_device: str
    branch: str
    last: str
    stem: str
    more: str
    dash: str


UNICODE = TreeGlyphs("■", "◆", "○", "•", "◦", "├── ", "└── ", "│", "…", "–")
ASCII = TreeGlyphs("#", "+", "o", "*", ".", "|-- ", "`-- ", "|", "..", "-")


@dataclass(frozen=True)
class TreeLine:
    """A line of the tree, and the trust of the edge server it is about."""

    text: str
    trust: Trust | None = None


def listing(topology: Topology, glyphs: TreeGlyphs = UNICODE) -> list[TreeLine]:
    """The tree; of a large network the two groups and the first edge servers.

    >>> for line in listing(Topology.regular(edges=2, devices=3, trust=1.0)):
    ...     print(line.text.rstrip())
    cloud
    ├── ■ edge-1  trusted    3 devices  30–73 m   •••
    └── ■ edge-2  trusted    3 devices  31–46 m   •••
    """
    words = _widest_word(topology)
    if topology.aggregators and topology.edges + len(topology.aggregators) <= MOST_LINES:
        return [TreeLine("cloud"), *_deep_tree(topology, glyphs)]
    if topology.edges <= MOST_LINES and not topology.aggregators:
        return [TreeLine("cloud"), *_tree(topology.subnets, topology.edges, words, glyphs)]
    groups = [
        _group([subnet for subnet in topology.subnets if subnet.trust == trust], trust, glyphs)
        for trust in reversed(TRUSTS)
    ]
    return [
        TreeLine("cloud"),
        *_upper_tiers(topology, glyphs),
        *(line for line in groups if line is not None),
        TreeLine("first edge servers:"),
        *_tree(topology.subnets[:FIRST_LINES], topology.edges, words, glyphs),
    ]


def _tree(subnets: Sequence[Subnet], of: int, words: int, glyphs: TreeGlyphs) -> list[TreeLine]:
    """A line for each of these edge servers, of so many; `words` is the width of the levels of trust."""
    names = [_short(subnet.name, glyphs) for subnet in subnets]
    width = max(map(len, names))
    digits = max(len(str(subnet.size)) for subnet in subnets)
    lines = []
    for position, (subnet, name) in enumerate(zip(subnets, names, strict=True), start=1):
        stem = glyphs.last if position == of else glyphs.branch
        symbol, word, dot = _signs(subnet.trust, glyphs)
        dots = dot * min(subnet.size, _MOST_DOTS) + (glyphs.more if subnet.size > _MOST_DOTS else "")
        lines.append(
            TreeLine(
                f"{stem}{symbol} {name:<{width}}  {word:<{words}}  {_devices(subnet.size, digits)}  "
                f"{_metres([subnet], glyphs):<8}  {dots}",
                subnet.trust,
            )
        )
    if len(subnets) < of:
        lines.append(TreeLine(f"{glyphs.last}{glyphs.more} {of - len(subnets):,} more (--json lists all)"))
    return lines


def _deep_tree(topology: Topology, glyphs: TreeGlyphs) -> list[TreeLine]:
    """Every edge server of every tier, each below the one above it."""
    nodes = {server.name: server for server in topology.servers()}
    stems: dict[str | None, str] = {None: ""}
    left: list[tuple[str, Subnet | Aggregator]] = []
    for server in nodes.values():
        last = topology.children(server.parent)[-1] == server.name
        stem = stems[server.parent]
        stems[server.name] = stem + (" " * len(glyphs.last) if last else glyphs.stem + " " * (len(glyphs.last) - 1))
        symbol, *_ = _signs(server.trust, glyphs)
        left.append((f"{stem}{glyphs.last if last else glyphs.branch}{symbol} {_short(server.name, glyphs)}", server))
    width = min(max(len(text) for text, _ in left), _WIDEST_TREE)
    digits = max(len(str(subnet.size)) for subnet in topology.subnets)
    words = _widest_word(topology)
    lines = []
    for text, server in left:
        _, word, _ = _signs(server.trust, glyphs)
        facts = ""
        if isinstance(server, Subnet):
            facts = f"  {_devices(server.size, digits)}  {_metres([server], glyphs):<8}"
        cut = text if len(text) <= width else text[: width - len(glyphs.more)] + glyphs.more
        lines.append(TreeLine(f"{cut:<{width}}  {word:<{words}}{facts}", server.trust))
    return lines


def _upper_tiers(topology: Topology, glyphs: TreeGlyphs) -> list[TreeLine]:
    """A line for each tier above the lowest and each kind of trust, of a large network."""
    lines = []
    for height in range(topology.depth, 1, -1):
        tier = [each for each in topology.aggregators if topology.height(each.name) == height]
        for trust in reversed(TRUSTS):
            count = sum(each.trust == trust for each in tier)
            symbol, word, _ = _signs(trust, glyphs)
            if count:
                lines.append(TreeLine(f"{glyphs.branch}{symbol} {count:>6,} {word:<10} of tier {height}", trust))
    return lines


def _group(subnets: list[Subnet], trust: Trust, glyphs: TreeGlyphs) -> TreeLine | None:
    if not subnets:
        return None
    symbol, word, _ = _signs(trust, glyphs)
    sizes = [subnet.size for subnet in subnets]
    spread = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)}{glyphs.dash}{max(sizes)}"
    return TreeLine(
        f"{glyphs.branch}{symbol} {len(subnets):>6,} {word:<10} {sum(sizes):>9,} devices  {spread} each  "
        f"{_metres(subnets, glyphs)}",
        trust,
    )


def _signs(trust: Trust, glyphs: TreeGlyphs) -> tuple[str, str, str]:
    if trust == "trusted":
        return glyphs.trusted, trust, glyphs.device
    return glyphs.secure_sum if trust == "secure-sum" else glyphs.untrusted, trust, glyphs.noisy_device


def _widest_word(topology: Topology) -> int:
    """Of the levels of trust in a list."""
    return max(len("untrusted"), *(len(server.trust) for server in topology.servers()))


def _devices(size: int, digits: int) -> str:
    return f"{size:>{digits}} {'device ' if size == 1 else 'devices'}"


def _metres(subnets: Sequence[Subnet], glyphs: TreeGlyphs) -> str:
    lowest = round(min(float(subnet.distance_m.min()) for subnet in subnets))
    highest = round(max(float(subnet.distance_m.max()) for subnet in subnets))
    return f"{lowest} m" if lowest == highest else f"{lowest}{glyphs.dash}{highest} m"


def _short(name: str, glyphs: TreeGlyphs) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - len(glyphs.more)] + glyphs.more
