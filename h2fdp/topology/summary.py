"""A topology in few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from h2fdp.topology.network import Subnet, Topology


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
