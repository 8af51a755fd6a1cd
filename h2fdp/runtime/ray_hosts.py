"""A run's hosts on Ray: connect, choose how many and where, start them, end them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from h2fdp.protocol import NodeGroup
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.capacity import number_of_hosts, shares
from h2fdp.runtime.cloud_host import CloudHost
from h2fdp.runtime.host_placement import PLACEMENTS, smallest_number_of_hosts
from h2fdp.runtime.ray_nodes import HostSettings, RayNodes
from h2fdp.runtime.ray_placement_groups import machines, placement_groups
from h2fdp.runtime.ray_session import ray_session
from h2fdp.runtime.section import RuntimeSection

TIMEOUT_S = 1800.0  # without an answer from a host; then the run stops and names it


@contextmanager
def ray_nodes(blueprint: Blueprint, section: RuntimeSection) -> Iterator[NodeGroup]:
    """The run's edge servers on hosts that end with the context.

    Raises:
        UserError: no cluster at the address; more was asked for than there is; a host was lost too often or is late.
    """
    with ray_session(section.address, blueprint.data_bytes):
        there = machines()
        smallest = smallest_number_of_hosts(section.placement, blueprint.topology)
        share = shares(section, there, smallest)
        free = ray.available_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
        hosts = number_of_hosts(section, there, share, smallest, free)
        places = PLACEMENTS[section.placement](blueprint.topology, hosts)
        with placement_groups(places, share) as groups:
            settings = HostSettings(share, f"h2fdp-{secrets.token_hex(4)}", TIMEOUT_S, groups)
            nodes = RayNodes(places, blueprint, settings)
            try:
                yield CloudHost(nodes) if section.placement == "entity" else nodes
            finally:
                nodes.end()
