"""The protocol itself: cloud, aggregators, groups of devices. Plain Python that does not know where it runs."""

from h2fdp.protocol.aggregator import Broadcast, InProcessNodes, NodeGroup, in_step
from h2fdp.protocol.averaging import Averaging
from h2fdp.protocol.cloud import Cloud
from h2fdp.protocol.devices import DeviceGroup
from h2fdp.protocol.edge_server import EdgeServer
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Order, Plan, Upload
from h2fdp.protocol.planner import Planner
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tiers import UpperAggregator
from h2fdp.protocol.tree_plan import TierFacts

__all__ = [
    "Averaging",
    "Broadcast",
    "Cloud",
    "DeviceGroup",
    "EdgeServer",
    "InProcessNodes",
    "IntervalPlan",
    "NodeGroup",
    "Order",
    "Plan",
    "Planner",
    "SubnetFacts",
    "TierFacts",
    "Upload",
    "UpperAggregator",
    "in_step",
]
