"""Start a run's hosts and hand out the team of edge servers that live on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from h2fdp.protocol import Team
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.local_hosts import local_team, run_arithmetic
from h2fdp.runtime.section import RuntimeSection, chosen_backend, inline_workers


@contextmanager
def start_hosts(blueprint: Blueprint, section: RuntimeSection) -> Iterator[Team]:
    """The edge servers of the run, inline or on Ray; hosts end with the context."""
    with run_arithmetic():
        if chosen_backend(section) == "ray":
            from h2fdp.runtime.ray_hosts import ray_team  # Ray takes a second to import

            with ray_team(blueprint, section) as team:
                yield team
        else:
            with local_team(blueprint, range(blueprint.topology.edges), inline_workers(section)) as team:
                yield team
