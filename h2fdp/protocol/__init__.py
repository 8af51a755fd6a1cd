"""The protocol itself: cloud, aggregators, groups of devices. Plain Python that does not know where it runs."""

from h2fdp.protocol.aggregator import Broadcast as Broadcast
from h2fdp.protocol.aggregator import InProcessNodes as InProcessNodes
from h2fdp.protocol.aggregator import NodeGroup as NodeGroup
from h2fdp.protocol.aggregator import in_step as in_step
from h2fdp.protocol.averaging import Averaging as Averaging
from h2fdp.protocol.cloud import Cloud as Cloud
from h2fdp.protocol.devices import DeviceGroup as DeviceGroup
from h2fdp.protocol.edge_server import EdgeServer as EdgeServer
from h2fdp.protocol.interval_plan import IntervalPlan as IntervalPlan
from h2fdp.protocol.messages import Order as Order
from h2fdp.protocol.messages import Plan as Plan
from h2fdp.protocol.messages import Upload as Upload
from h2fdp.protocol.planner import Planner as Planner
from h2fdp.protocol.subnet_facts import SubnetFacts as SubnetFacts
from h2fdp.protocol.tiers import UpperAggregator as UpperAggregator
from h2fdp.protocol.tree_plan import TierFacts as TierFacts
