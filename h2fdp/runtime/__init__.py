"""Processes of nodes: this process or Ray actors, and the subnets of each host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from h2fdp.arithmetic import run_arithmetic
from h2fdp.protocol import NodeGroup
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.host import run_interval
from h2fdp.runtime.lockstep import inline_nodes
from h2fdp.runtime.placement import RuntimeSection, chosen_backend, inline_workers, require_ray

__all__ = ["Blueprint", "RuntimeSection", "chosen_backend", "run_interval", "start_hosts"]


@contextmanager
def start_hosts(blueprint: Blueprint, section: RuntimeSection) -> Iterator[NodeGroup]:
    """The edge servers of the run, inline or on Ray; hosts end with the context."""
    with run_arithmetic():
        if chosen_backend(section) == "ray":
            require_ray()
            from h2fdp.runtime.ray_nodes import ray_nodes  # Ray takes a second to import

            with ray_nodes(blueprint, section) as nodes:
                yield nodes
        else:
            with inline_nodes(blueprint, range(blueprint.topology.edges), inline_workers(section)) as nodes:
                yield nodes
