"""Hosts as Ray actors on this machine; each holds whole subnets."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from h2fdp.errors import UserError
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.local_hosts import local_team, set_arithmetic
from h2fdp.runtime.placement import packed
from h2fdp.runtime.section import RuntimeSection

# A local cluster of our own: a random token that is never written down, no usage report, no warning banners.
os.environ.setdefault("RAY_AUTH_MODE", "token")
if os.environ["RAY_AUTH_MODE"] == "token" and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray


class Host:
    """A process that holds nodes: edge servers with their devices."""

    def __init__(self, blueprint: Blueprint, numbers: list[int]) -> None:
        set_arithmetic()
        self._stack = ExitStack()
        self._team = self._stack.enter_context(local_team(blueprint, numbers, workers=1))

    def ready(self) -> bool:
        """Answers once the nodes are built."""
        return True

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """See `Team.call`."""
        return self._team.call(method, shared, each)


class RayTeam:
    """Edge servers on actors, addressed together: one call to each host that holds any of them."""

    def __init__(self, hosts: list[Any], owners: dict[str, int]) -> None:
        self._hosts = hosts
        self._owners = owners

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        """See `Team.call`."""
        parts: dict[int, dict[str, Any]] = {}
        for name, item in each.items():
            parts.setdefault(self._owners[name], {})[name] = item
        reference = ray.put(shared)
        pending = [self._hosts[host].call.remote(method, reference, part) for host, part in parts.items()]
        return {name: answer for answers in _wait(pending) for name, answer in answers.items()}


def _resources() -> dict[str, float]:
    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


def _wait(pending: list[Any]) -> list[Any]:
    """All results; a user's mistake that came up on a host is told as one."""
    try:
        return list(ray.get(pending))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise


def _fitting_hosts(section: RuntimeSection, cpus: float, gpus: float) -> int:
    """How many hosts to start; asking for more than there is fails at once, instead of waiting for ever."""
    fitting = int(cpus / section.cpus_per_host)
    if section.gpus_per_host and gpus:  # without any the run goes on on CPUs, and says so
        sharing = int(gpus / section.gpus_per_host)
        if sharing < 1 or (section.hosts != "auto" and section.hosts > sharing):
            text = f"hosts of {section.gpus_per_host:g} GPUs were asked for, this machine has {gpus:g} GPUs"
            raise UserError(f"{text}; at most {sharing} such hosts fit", key="runtime.gpus_per_host")
        fitting = min(fitting, sharing)
    if fitting < 1:
        text = f"hosts of {section.cpus_per_host:g} CPUs were asked for, this machine has {cpus:g} CPUs"
        raise UserError(f"{text}; expected at most {cpus:g}", key="runtime.cpus_per_host")
    if section.hosts == "auto":
        return fitting
    if section.hosts > fitting:
        text = f"{section.hosts} hosts of {section.cpus_per_host:g} CPUs were asked for, this machine has {cpus:g} CPUs"
        raise UserError(f"{text}; expected at most {fitting}", key="runtime.hosts")
    return section.hosts


@contextmanager
def ray_team(blueprint: Blueprint, section: RuntimeSection) -> Iterator[RayTeam]:
    """Start Ray unless it runs in this process already, place whole subnets on hosts, end what was started."""
    started_here = not ray.is_initialized()
    if started_here:
        # log_to_driver: what actors print belongs to nobody's terminal; their errors come back with the call.
        # address="local": an address in the environment belongs to somebody else's cluster.
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    hosts: list[Any] = []
    try:
        gpus = _resources().get("GPU", 0.0)
        wanted = _fitting_hosts(section, _resources().get("CPU", 1.0), gpus)
        parts = packed(blueprint.topology.sizes, wanted)
        actor = ray.remote(Host).options(num_cpus=section.cpus_per_host, num_gpus=section.gpus_per_host if gpus else 0)
        reference = ray.put(blueprint)
        hosts = [actor.remote(reference, numbers) for numbers in parts]
        _wait([host.ready.remote() for host in hosts])
        subnets = blueprint.topology.subnets
        yield RayTeam(hosts, {subnets[number].name: host for host, numbers in enumerate(parts) for number in numbers})
    finally:
        for host in hosts:
            ray.kill(host)
        if started_here:
            ray.shutdown()
