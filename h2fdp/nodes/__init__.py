"""The protocol itself: cloud, edge servers, groups of devices. Plain Python that does not know where it runs."""

from h2fdp.nodes.bunch import Bunch
from h2fdp.nodes.cloud import Cloud
from h2fdp.nodes.device_group import DeviceGroup
from h2fdp.nodes.edge_server import EdgeServer
from h2fdp.nodes.interval import IntervalPlan, SubnetFacts
from h2fdp.nodes.planner import Planner
from h2fdp.nodes.plans import SubnetPlan, TrainingOrder
from h2fdp.nodes.team import LocalTeam, Team

__all__ = [
    "Bunch",
    "Cloud",
    "DeviceGroup",
    "EdgeServer",
    "IntervalPlan",
    "LocalTeam",
    "Planner",
    "SubnetFacts",
    "SubnetPlan",
    "Team",
    "TrainingOrder",
]
