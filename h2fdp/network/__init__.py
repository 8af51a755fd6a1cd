"""The tree of cloud, edge servers and devices: read, checked, drawn from a seed, generated, written and pictured."""

from h2fdp.network.channel import Access, PathLoss
from h2fdp.network.devices import Column
from h2fdp.network.drawing import draw
from h2fdp.network.fading import Fading
from h2fdp.network.files import from_document, read, write
from h2fdp.network.network import CLOUD, Aggregator, Link, Relays, Subnet
from h2fdp.network.radio import Radio
from h2fdp.network.schema import TopologyFile
from h2fdp.network.topology import GENERATORS, Topology
from h2fdp.network.trust import TRUSTS, Trust

__all__ = [
    "CLOUD",
    "GENERATORS",
    "TRUSTS",
    "Access",
    "Aggregator",
    "Column",
    "Fading",
    "Link",
    "PathLoss",
    "Radio",
    "Relays",
    "Subnet",
    "Topology",
    "TopologyFile",
    "Trust",
    "draw",
    "from_document",
    "read",
    "write",
]
