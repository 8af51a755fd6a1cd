"""A topology in few numbers and as a tree of text, 80 columns wide, which needs no colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from h2fdp.network.network import TRUSTS, Subnet, Trust
from h2fdp.network.schema import PARTS
from h2fdp.network.topology import Topology
from h2fdp.wording import counted

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
        "cloud_trust": topology.cloud_trust,
        **words_of_parts(topology),
        "subnet_size": _range(sizes) | {"lowest": int(sizes.min()), "highest": int(sizes.max())},
        **{name: _range(values) for name, values in topology.table.columns.items()},
    }


def _levels(trust: Sequence[Trust]) -> dict[str, int]:
    """The number of edge servers of each level of trust."""
    return {level.replace("-", "_"): trust.count(level) for level in reversed(TRUSTS)}


def _range(values: Any) -> dict[str, float]:
    return {"lowest": float(np.min(values)), "median": float(np.median(values)), "highest": float(np.max(values))}


def headline(topology: Topology) -> str:
    """The numbers of edge servers and devices, in one line.

    >>> headline(Topology.regular(edges=4, devices=5, trust=1.0))
    '4 edge servers, 4 trusted; 20 devices'
    """
    trusts = [server.trust for server in topology.servers()]
    secure, relays = trusts.count("secure-sum"), trusts.count("relay")
    trust_counts = f"{trusts.count('trusted'):,} trusted" + (f", {secure:,} with secure sums" if secure else "")
    trust_counts += f", {counted(relays, 'relay')}" if relays else ""
    tiers = f" in {topology.depth} tiers" if topology.depth > 1 else ""
    moves = "" if topology.moving is None else "; devices move"
    return f"{counted(len(trusts), 'edge server')}{tiers}, {trust_counts}; {counted(topology.devices, 'device')}{moves}"


def words_of_parts(topology: Topology) -> dict[str, str | None]:
    """The parts by which devices move, by key, in a few words; None for one that is not there."""
    parts = topology.parts
    return {key: parts[key].words() if key in parts else None for key, each in PARTS.items() if each.moves}


_RELAYS = "it passes masked vectors on, all devices share one noise"


def trust_words(topology: Topology) -> dict[Trust, str]:
    """The meaning of trust for the noise, for a legend."""
    if topology.aggregators:
        return {
            "trusted": "noise is added where trust ends, at it or above",
            "secure-sum": "it sees a sum, noisy already",
            "relay": _RELAYS,
            "untrusted": "what reaches it is noisy already",
        }
    return {
        "trusted": "the edge server adds the noise",
        "secure-sum": "devices share one noise, it sees their sum",
        "relay": _RELAYS,
        "untrusted": "every device adds noise",
    }


ASCII = str.maketrans({"■": "#", "◆": "+", "○": "o", "•": "*", "◦": ".", "├": "|", "└": "`", "─": "-", "│": "|",
                       "▷": ">", "…": "..", "–": "-"})  # fmt: skip
SYMBOLS: Mapping[Trust, str] = {"trusted": "■", "secure-sum": "◆", "relay": "▷", "untrusted": "○"}


class TreeLine(NamedTuple):
    """A line of the tree, and the trust of the edge server it is about."""

    text: str
    trust: Trust | None = None


def listing(topology: Topology) -> list[TreeLine]:
    """The tree, each edge server below the node above it; of a large network the first ones.

    >>> for line in listing(Topology.regular(edges=2, devices=3, trust=1.0)):
    ...     print(line.text.rstrip())
    cloud
    ├── ■ edge-1  trusted    3 devices  30–73 m   •••
    └── ■ edge-2  trusted    3 devices  31–46 m   •••
    """
    servers = list(topology.servers())
    shown = servers if len(servers) <= MOST_LINES else servers[:FIRST_LINES]
    stems: dict[str | None, str] = {None: ""}
    names = []
    for server in shown:
        stem, last = stems[server.parent], topology.children(server.parent)[-1] == server.name
        stems[server.name] = stem + ("    " if last else "│   ")
        name = server.name if len(server.name) <= _LONGEST_NAME else f"{server.name[: _LONGEST_NAME - 2]}…"
        names.append(f"{stem}{'└── ' if last else '├── '}{SYMBOLS[server.trust]} {name}")
    width = min(max(map(len, names)), _WIDEST_TREE)
    words = max(len("untrusted"), *(len(server.trust) for server in shown))
    digits = len(str(max((server.size for server in shown if isinstance(server, Subnet)), default=0)))
    lines = [TreeLine("cloud" if topology.cloud_trust == "untrusted" else f"cloud  {topology.cloud_trust}")]
    for name, server in zip(names, shown, strict=True):
        text = f"{name if len(name) <= width else f'{name[: width - 2]}…':<{width}}  {server.trust:<{words}}"
        if isinstance(server, Subnet):
            distance_m = server.column("distance_m")
            low, high = round(float(distance_m.min())), round(float(distance_m.max()))
            devices = f"{server.size:>{digits}} {'device ' if server.size == 1 else 'devices'}"
            text += f"  {devices}  {f'{low} m' if low == high else f'{low}–{high} m':<8}"
            if topology.depth == 1:
                dot = "•" if server.trusted else "◦"
                text += f"  {dot * min(server.size, _MOST_DOTS)}{'…' if server.size > _MOST_DOTS else ''}"
        lines.append(TreeLine(text, server.trust))
    if len(shown) < len(servers):
        lines.append(TreeLine(f"└── … {len(servers) - len(shown):,} more"))
    return lines
