"""The tree of cloud, edge servers and devices: read, checked, drawn from a seed, generated, written and pictured."""

from h2fdp.topology.channel import Access, PathLoss
from h2fdp.topology.devices import Column, Compute, PerStep
from h2fdp.topology.drawing import draw
from h2fdp.topology.fading import Fading
from h2fdp.topology.files import from_document, read, write
from h2fdp.topology.network import CLOUD, Aggregator, Link, Relays, Subnet
from h2fdp.topology.radio import Radio
from h2fdp.topology.schema import TopologyFile
from h2fdp.topology.topology import GENERATORS, Topology
from h2fdp.topology.trust import TRUSTS, Trust

__all__ = [
    "CLOUD",
    "GENERATORS",
    "TRUSTS",
    "Access",
    "Aggregator",
    "Column",
    "Compute",
    "Fading",
    "Link",
    "PathLoss",
    "PerStep",
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
