"""The cloud on a host of its own: the driver plans and keeps the books, that host runs the interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from h2fdp.protocol import Cloud, InProcessNodes, IntervalPlan, NodeGroup
from h2fdp.runtime.hardware import kinds_of
from h2fdp.topology import CLOUD


@dataclass(frozen=True)
class CloudNode:
    """What the cloud's host holds: the way to the edge servers. The cloud itself travels with each interval.

    So the host keeps nothing that could be lost with it, and the driver has a model to resume from whatever happens.
    """

    edges: NodeGroup

    def run(self, cloud: Cloud, plan: IntervalPlan) -> Cloud:
        """The cloud after an interval."""
        here = cloud.above(self.edges)
        here.run_interval(plan)
        return here.above(InProcessNodes({}))

    def relay(self, shared: Any, call: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Call the edge servers."""
        method, each = call
        return self.edges.call(method, shared, each)


class CloudHost:
    """The driver's end of it; also a `NodeGroup` of the edge servers."""

    def __init__(self, hosts: NodeGroup) -> None:
        self._hosts = hosts

    @property
    def kinds(self) -> Mapping[str, str]:
        """Host -> what it computes with."""
        return kinds_of(self._hosts)

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._hosts.call("relay", shared, {CLOUD: (method, each)})[CLOUD]
        return answer

    def run_interval(self, cloud: Cloud, plan: IntervalPlan) -> None:
        """Run a plan there; `cloud` then is what came back."""
        cloud.become(self._hosts.call("run", cloud.above(InProcessNodes({})), {CLOUD: plan})[CLOUD])


def run_interval(edges: NodeGroup, cloud: Cloud, plan: IntervalPlan) -> None:
    """Run a plan where the cloud lives: on a host of its own if it has one, else here."""
    if isinstance(edges, CloudHost):
        edges.run_interval(cloud, plan)
    else:
        cloud.run_interval(plan)
