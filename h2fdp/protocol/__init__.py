"""The protocol itself: cloud, edge servers, groups of devices. Plain Python that does not know where it runs."""

from h2fdp.protocol.bunch import Bunch
from h2fdp.protocol.cloud import Cloud
from h2fdp.protocol.device_group import DeviceGroup
from h2fdp.protocol.edge_server import EdgeServer
from h2fdp.protocol.interval import IntervalPlan, SubnetFacts
from h2fdp.protocol.planner import Planner
from h2fdp.protocol.plans import SubnetPlan, TrainingOrder
from h2fdp.protocol.team import LocalTeam, Team

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
