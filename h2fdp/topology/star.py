"""The star of a network: every device under the cloud itself, as methods without edge servers have it (FedAvg).

Who learns what changes, the radio does not: a device is as far from its access point as before, and what it sends goes
on to the cloud by wire. The edge servers are thus no longer parties, but their links still carry messages, now those
of each device where there was one for each subnet. Without these relays a star would get its second hop for free.
"""

from __future__ import annotations

import numpy as np

from h2fdp.topology.network import CLOUD, Floats, Link, Subnet, Topology


def star_of(topology: Topology) -> Topology:
    """The same devices under one untrusted edge server, the cloud's own, whose link costs nothing.

    Every device keeps its name, its power, its distance to its access point, and as its relay the rate and the power
    of the link from there to the cloud. The star of a star is itself.
    """
    relays = [_relays(subnet) for subnet in topology.subnets]
    only = Subnet(
        name=CLOUD,
        trusted=False,
        distance_m=np.concatenate([subnet.distance_m for subnet in topology.subnets]),
        power_dbm=np.concatenate([subnet.power_dbm for subnet in topology.subnets]),
        link=Link(rate_bps=float("inf"), power_dbm=0.0),
        names=tuple(name for subnet in topology.subnets for name in subnet.device_names()),
        relay_rate_bps=np.concatenate([rate for rate, _ in relays]),
        relay_power_dbm=np.concatenate([power for _, power in relays]),
    )
    return Topology(topology.name, (only,), topology.radio, topology.compute)


def _relays(subnet: Subnet) -> tuple[Floats, Floats]:
    """(s,) the rate and (s,) the power of the link that carries each device's messages to the cloud."""
    if subnet.relay_rate_bps is not None and subnet.relay_power_dbm is not None:
        return subnet.relay_rate_bps, subnet.relay_power_dbm
    return np.full(subnet.size, subnet.link.rate_bps), np.full(subnet.size, subnet.link.power_dbm)
