"""A network with positions: edge servers and devices at random in a square, each device in the nearest one's cell."""

from __future__ import annotations

import numpy as np

from h2fdp.streams import Streams
from h2fdp.topology.arrays import Floats
from h2fdp.topology.expansion import DRAWN_DECIMALS, draw_trust
from h2fdp.topology.network import Subnet
from h2fdp.topology.schema import DEFAULT_POWER_DBM

NEAREST_M = 1.0  # a device is not inside its edge server's antenna: path loss is relative to 1 m
_LAYOUT = "layout"


def placed(edges: int, devices: int, trust: float, side_m: float, seed: int) -> tuple[Subnet, ...]:
    """The subnets of edge servers placed uniformly in a square of side `side_m`, in metres.

    Of edges x devices devices, one for each edge server is placed uniformly in the largest disc around it that its cell
    is sure to hold, so that no edge server is without devices; all others uniformly in the square. Each joins the
    nearest edge server, and its distance is the real one, but at least 1 m.
    """
    from sklearn.neighbors import KDTree  # 1 s, for those who place networks

    streams = Streams(seed)
    servers = streams.open(_LAYOUT, "edge servers").random((edges, 2)) * side_m
    free = streams.open(_LAYOUT, "devices").random((edges * (devices - 1), 2)) * side_m
    tree = KDTree(servers)
    apart = tree.query(servers, k=2)[0][:, 1] if edges > 1 else np.array([side_m])
    joined = tree.query(free)[1][:, 0] if len(free) else np.zeros(0, dtype=np.int64)
    positions = np.concatenate([_near(servers, apart, streams), free])
    owners = np.concatenate([np.arange(edges), joined])
    distances = np.round(np.linalg.norm(positions - servers[owners], axis=1), DRAWN_DECIMALS).clip(min=NEAREST_M)
    order = np.argsort(owners, kind="stable")
    bounds = np.cumsum(np.bincount(owners, minlength=edges))[:-1]
    names = [f"edge-{number}" for number in range(1, edges + 1)]
    return tuple(
        Subnet(name, draw_trust(name, trust, streams), of_edge, np.full(len(of_edge), DEFAULT_POWER_DBM))
        for name, of_edge in zip(names, np.split(distances[order], bounds), strict=True)
    )


def _near(servers: Floats, apart: Floats, streams: Streams) -> Floats:
    """(m, 2) a point in each server's cell: within half the distance to the next server."""
    uniform = streams.open(_LAYOUT, "first devices").random((len(servers), 2))
    angle, reach = 2 * np.pi * uniform[:, 0], apart / 2 * np.sqrt(uniform[:, 1])
    return servers + np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
