"""The star of a network: every device under the cloud itself, as methods without edge servers have it (FedAvg).

Who learns what changes, the radio does not: a device sends to the access point that it had, under the same fading and
beside the same neighbours, and what it sends goes on to the cloud by wire. The edge servers are thus no longer parties,
but their links still carry messages, now those of each device where there was one for each subnet. Without these relays
a star would get its second hop for free, and its devices would queue for one channel.
"""

from __future__ import annotations

import numpy as np

from h2fdp.topology.network import CLOUD, Link, Subnet, Topology
from h2fdp.topology.relays import Relays


def star_of(topology: Topology) -> Topology:
    """The same devices under one untrusted edge server, the cloud's own, whose link costs nothing.

    Every device keeps its name, its power and its distance; the edge servers stay as relays. The star of a star is
    itself.
    """
    only = Subnet(
        name=CLOUD,
        trusted=False,
        distance_m=np.concatenate([subnet.distance_m for subnet in topology.subnets]),
        power_dbm=np.concatenate([subnet.power_dbm for subnet in topology.subnets]),
        link=Link(rate_bps=float("inf"), power_dbm=0.0),
        names=tuple(name for subnet in topology.subnets for name in subnet.device_names()),
        relays=topology.subnets[0].relays or _relays(topology),
    )
    return Topology(topology.name, (only,), topology.radio, topology.compute)


def _relays(topology: Topology) -> Relays:
    links = [subnet.link for subnet in topology.subnets]
    return Relays(
        names=tuple(subnet.name for subnet in topology.subnets),
        sizes=topology.sizes,
        rate_bps=np.array([link.rate_bps for link in links]),
        power_dbm=np.array([link.power_dbm for link in links]),
    )
