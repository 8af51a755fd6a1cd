"""Networks of every size in a page."""

import re

import pytest

from h2fdp.network import Topology
from h2fdp.reports.decisions import decision_table, participation
from h2fdp.reports.network import drawing
from h2fdp.reports.run_view import RunView


def user(topology):
    view = RunView(None, "run", {}, {}, "", {}, {}, [])
    view.__dict__["topology"] = topology
    return view


@pytest.mark.slow
@pytest.mark.parametrize(("edges", "devices"), [(1, 1), (3, 2), (24, 10), (41, 4), (241, 3), (2000, 3)])
def test_a_drawing_is_light_whatever_the_network(edges, devices):
    topology = Topology.regular(edges=edges, devices=devices, trust=0.5, seed=1)
    content = drawing(0, topology, [user(topology)])
    assert len(content.svg) < 1_000_000
    trusted = sum(subnet.trusted for subnet in topology.subnets)
    assert f"{trusted:,} trusted; {edges * devices:,} device" in content.caption
    for trust in ("trusted", "untrusted"):
        present = any(subnet.trust == trust for subnet in topology.subnets)
        assert (f">{trust} edge server" in content.svg) == present


@pytest.mark.parametrize("tiers", [(1, 1, 1), (2, 3, 4), (4, 6, 5, 7)])
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


def test_a_drawing_has_the_colours_of_the_theme_and_no_identifier_of_another():
    topology = Topology.regular(edges=4, devices=2, trust=0.3, secure_sum=0.3)
    first, second = (drawing(at, topology, [user(topology)]).svg for at in (0, 1))
    assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r"(href|url)[=(]\S+", "", first))
    assert all("fill: var(--ink)" in style for style in re.findall(r'<text style="(.*?)"', first))
    ids = [set(re.findall(r' id="(.*?)"', svg)) for svg in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert {each[1:] for each in re.findall(r'xlink:href="(.*?)"', first)} <= ids[0]


def row(interval, **changes):
    values = {
        "interval": interval,
        "slot": interval * 5,
        "tau": 5,
        "participation": {"a": 2, "b": 3},
        "step_size": 0.1,
        "objective": 1.0,
        "terms": {"energy": 0.5, "delay": 0.25, "gap": 0.25},
        "runner_up": None,
        "constants": {"beta": 1.0},
        "swamped": [],
    }
    return values | changes


def test_participation_is_a_matrix_of_edge_servers_and_intervals():
    heat = participation(0, "run", [row(1), row(2, participation={"a": 1, "b": 4})])
    assert (heat.rows, heat.columns, heat.values) == (["a", "b"], [1, 2], [[2, 1], [3, 4]])


def test_decisions_of_large_networks_and_long_runs_are_thinned_out():
    summed = {"smallest": 1.0, "median": 2.0, "largest": 3.0}
    heat = participation(0, "run", [row(at + 1, participation=summed) for at in range(5000)])
    assert heat.caption.startswith("The smallest, median and largest number")
    assert (len(heat.columns), heat.columns[0], heat.columns[-1]) == (400, 1, 5000)
    table = decision_table([row(at + 1) for at in range(5000)])
    assert (len(table.rows), table.rows[0][0], table.rows[-1][0]) == (60, 1, 5000)
    assert table.rows[0][3] == 5
