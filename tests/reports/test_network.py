"""Networks of every size in a page."""

import re

import pytest

from h2fdp.network import Topology
from h2fdp.reports.network import drawing
from h2fdp.reports.run_view import RunView


def user(topology):
    view = RunView(None, "run", {}, {}, "", {}, {}, [])
    view.__dict__["topology"] = topology
    return view


@pytest.mark.slow
@pytest.mark.parametrize(("edges", "devices"), [(1, 1), (24, 10), (2000, 3)])
def test_a_drawing_is_light_whatever_the_network(edges, devices):
    topology = Topology.regular(edges=edges, devices=devices, trust=0.5, seed=1)
    content = drawing(0, topology, [user(topology)])
    assert len(content.svg) < 1_000_000
    trusted = sum(subnet.trusted for subnet in topology.subnets)
    assert f"{trusted:,} trusted; {edges * devices:,} device" in content.caption
    for trust in ("trusted", "untrusted"):
        present = any(subnet.trust == trust for subnet in topology.subnets)
        assert (f">{trust} edge server" in content.svg) == present


@pytest.mark.parametrize("tiers", [(2, 3, 4)])
def test_every_node_of_a_deep_network_is_drawn_with_its_facts(tiers):
    topology = Topology.deep(tiers)
    content = drawing(0, topology, [user(topology)])
    servers = list(topology.servers())
    trusted = sum(server.trusted for server in servers)
    assert f"{len(servers):,} edge servers in {topology.depth} tiers, {trusted:,} trusted" in content.caption
    titles = set(re.findall("<title>(.*?):", content.svg))
    assert titles == {server.name for server in servers} | {
        name for subnet in topology.subnets for name in subnet.device_names()
    }
