"""Start a run's hosts and hand out the team of edge servers that live on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from h2fdp.nodes import LocalTeam, Team
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.section import RuntimeSection, chosen_backend


@contextmanager
def start_hosts(blueprint: Blueprint, section: RuntimeSection) -> Iterator[Team]:
    """The edge servers of the run, inline or on Ray; hosts end with the context."""
    with one_thread():
        if chosen_backend(section) == "ray":
            from h2fdp.runtime.ray_hosts import ray_team  # Ray takes a second to import

            with ray_team(blueprint, section) as team:
                yield team
        else:
            yield LocalTeam(
                {subnet.name: blueprint.edge_server(number) for number, subnet in enumerate(blueprint.topology.subnets)}
            )


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread: how a sum is split over threads changes its last bits, and equal seeds give equal bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
