"""The star of a network: every device under the cloud itself, as methods without edge servers have it (FedAvg).

Who learns what changes, the radio does not: a device sends to the access point that it had, under the same fading and
beside the same neighbours, and its messages go to the cloud by wire. The edge servers are thus no longer parties,
but their links still carry messages, now those of each device where there was one for each subnet. Without these relays
a star would get its second hop for free, and its devices would queue for one channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from h2fdp.topology.devices import Floats
from h2fdp.topology.network import CLOUD, Link, Relays, Subnet


def star_of(subnets: Sequence[Subnet], wires: Sequence[Sequence[Link]], columns: Mapping[str, Floats]) -> Subnet:
    """The same devices under one untrusted edge server, the cloud's own, whose link costs nothing.

    Every device keeps its name and its numbers; the edge servers stay as relays. The star of a star is
    itself.

    Args:
        subnets: of the network.
        wires: for each of them the links from its edge server up to the cloud.
        columns: (I,) numbers of all their devices.
    """
    return Subnet(
        name=CLOUD,
        trust="untrusted",
        columns=columns,
        link=Link(rate_bps=float("inf"), power_dbm=0.0),
        names=tuple(name for subnet in subnets for name in subnet.device_names()),
        relays=subnets[0].relays or _relays(subnets, [_as_one(links) for links in wires]),
    )


def _relays(subnets: Sequence[Subnet], wires: Sequence[Link]) -> Relays:
    """The lowest edge servers, each with the wires from there to the cloud as one.

    Wires in a row take the sum of their times and of their energies for each message: as one they have
    1 / rate = sum 1 / rate_i and power / rate = sum power_i / rate_i, whatever the message's size.
    """
    return Relays(
        names=tuple(subnet.name for subnet in subnets),
        sizes=np.array([subnet.size for subnet in subnets]),
        rate_bps=np.array([wire.rate_bps for wire in wires]),
        power_dbm=np.array([wire.power_dbm for wire in wires]),
    )


def _as_one(links: Sequence[Link]) -> Link:
    if len(links) == 1:
        return links[0]
    rates = np.array([link.rate_bps for link in links])
    seconds_per_bit = float(np.sum(1 / rates))
    if seconds_per_bit == 0:  # messages cost nothing on any of them
        return links[0]
    with np.errstate(all="ignore"):  # what is not finite, the relays refuse
        joules_per_bit = np.sum(10 ** (np.array([link.power_dbm for link in links]) / 10) / rates)
        return Link(1 / seconds_per_bit, float(10 * np.log10(joules_per_bit / seconds_per_bit)))
