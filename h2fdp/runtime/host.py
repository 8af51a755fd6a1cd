"""A process that holds nodes: built from the blueprint and a `HostSpec`, called by the node or driver above.

Where the cloud has a host of its own, the driver plans and keeps the books, and that host runs the interval.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from h2fdp.arithmetic import run_arithmetic
from h2fdp.network import CLOUD
from h2fdp.protocol import Cloud, EdgeServer, InProcessNodes, IntervalPlan, NodeGroup
from h2fdp.protocol.aggregator import added_up
from h2fdp.records.atomic import hash_of
from h2fdp.records.directory import PACKAGE, versions
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.lockstep import inline_nodes
from h2fdp.runtime.placement import HostSpec

ARITHMETIC = ("numpy", "torch")  # libraries that compute every run
COMPILERS = ("llvmlite", "numba")  # those that write what the compiled engine runs
_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "DNNL_MAX_CPU_ISA",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_OPT",
)


@cache
def hardware() -> dict[str, str]:
    """This process's CPU, the instruction sets that libraries take of it, and the variables by which they choose."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name {platform.machine()} {platform.processor()}"]
    words = ("model name", "flags", "Features", "CPU part")
    return {
        "processor": hash_of(sorted({line for line in lines if line.startswith(words)})),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
    }


def arithmetic() -> str:
    """A digest of the `hardware` and of the versions of what computes."""
    return hash_of([json.dumps([hardware(), versions((*ARITHMETIC, *COMPILERS))])])


def kinds_of(edges: NodeGroup) -> Mapping[str, str]:
    """Host -> its `arithmetic`, of all hosts that these edge servers are on; empty where this process is all."""
    kinds: Mapping[str, str] = getattr(edges, "kinds", {})
    return kinds


def alike(edges: NodeGroup) -> bool:
    """Whether every host of these edge servers computes as this process does."""
    return set(kinds_of(edges).values()) <= {arithmetic()}


_INTERVAL = "interval of the cloud"


def run_interval(edges: NodeGroup, cloud: Cloud, plan: IntervalPlan) -> None:
    """Run a plan where the cloud lives: on a host of its own if it has one, else here.

    The cloud travels there with each interval and back. So its host keeps nothing that could be lost with it, and the
    driver has a model to resume from whatever happens.
    """
    if getattr(edges, "has_cloud", False):
        cloud.become(edges.call(_INTERVAL, cloud.above(InProcessNodes({})), {CLOUD: plan})[CLOUD])
    else:
        cloud.run_interval(plan)


def split_servers(blueprint: Blueprint, specs: Sequence[HostSpec], hosts: NodeGroup) -> dict[str, EdgeServer]:
    """The edge servers whose devices are on several of these hosts: they are where the hosts are called."""
    shares = [each for spec in specs if spec.kind == "subnets" for each in spec.shares]
    spans: dict[int, dict[str, tuple[int, int]]] = {}
    for each in sorted(shares, key=lambda share: share.rows.start):  # uploads are averaged in the order of rows
        spans.setdefault(each.number, {})[each.name] = each.rows.start, each.rows.stop
    servers = (blueprint.edge_server_above(number, hosts, own) for number, own in spans.items())
    return {each.name: each for each in servers}


Below = Callable[[Blueprint], NodeGroup]


@dataclass(frozen=True)
class HostLocation:
    """The place where a host runs.

    Attributes:
        process: its number.
        package: the folder of the package that it imported.
        kinds: host -> what it computes with (`arithmetic`), of itself and of the hosts below it.
    """

    process: int
    package: str
    kinds: dict[str, str]


class Host:
    """Holds the nodes of one `HostSpec`. It keeps no state between calls.

    So a lost host is another one built from the same spec, and a call that it did not answer is made again: what nodes
    draw is keyed, hence the same. Nodes with state of their own would be handed it in `build`.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(run_arithmetic())
        self._nodes: NodeGroup = InProcessNodes({})
        self._below: NodeGroup = self._nodes

    def build(self, blueprint: Blueprint, spec: HostSpec, below: Below) -> HostLocation:
        """Build the nodes; `below` makes those of the hosts below."""
        self._below = below(blueprint) if spec.below else InProcessNodes({})
        self._nodes = self._built(blueprint, spec, self._below)
        return HostLocation(os.getpid(), str(PACKAGE), {spec.name: arithmetic(), **kinds_of(self._below)})

    def _built(self, blueprint: Blueprint, spec: HostSpec, lower: NodeGroup) -> NodeGroup:
        if spec.kind == "subnets":
            return self._stack.enter_context(inline_nodes(blueprint, spec.numbers, workers=1, shares=spec.shares))
        if spec.kind == "cloud":
            return lower
        (name,) = spec.nodes
        if spec.kind == "device":
            (share,) = spec.shares
            return InProcessNodes({name: blueprint.devices(share.number, share.rows)})
        devices = {each.name: (each.rows.start, each.rows.stop) for device in spec.below for each in device.shares}
        return InProcessNodes({name: blueprint.edge_server_above(spec.numbers[0], lower, devices)})

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The nodes' answers, and the hosts below that were lost since the last call, with reasons.

        Where the cloud is here, the answers are those of the edge servers below it, or the cloud after an interval.
        """
        if method == _INTERVAL:
            cloud: Cloud = shared.above(self._nodes)
            cloud.run_interval(each[CLOUD])
            answers = {CLOUD: cloud.above(InProcessNodes({}))}
        else:
            answers = self._nodes.call(method, shared, each)
        lost = getattr(self._below, "lost", [])
        losses, lost[:] = list(lost), []
        return answers, losses

    def add_up(
        self, method: str, shared: Any, each: Mapping[str, Any], before: Callable[[], Tensor | None]
    ) -> tuple[str | None, Tensor | None]:
        """The sum of the host before, waited for when the nodes have trained, and their updates; or why it has none."""
        answers = self._nodes.call(method, shared, each)
        try:
            return None, added_up(answers, each, before())
        except LookupError as error:
            return str(error), None
