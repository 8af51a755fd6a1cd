"""Networks of every size in a page."""

import json

import numpy as np
import pytest

from h2fdp.reports.decisions import decision_table, participation
from h2fdp.reports.network import drawing
from h2fdp.reports.run_view import RunView
from h2fdp.topology import Topology
from h2fdp.topology.picture import fits
from h2fdp.topology.wheel import MOST_BARS, parts


def user(topology):
    view = RunView(None, "run", {}, {}, "", {}, {}, [])
    view.__dict__["topology"] = topology
    return view


@pytest.mark.slow
@pytest.mark.parametrize(("edges", "devices"), [(1, 1), (3, 2), (24, 10), (30, 4), (240, 3), (241, 3), (20_000, 2)])
def test_a_drawing_is_light_whatever_the_network(edges, devices):
    topology = Topology.regular(edges=edges, devices=devices, trust=0.5, seed=1)
    content = drawing(0, topology, [user(topology)])
    assert len(json.dumps([content.traces, content.labels])) < 300_000
    trusted = sum(subnet.trusted for subnet in topology.subnets)
    assert f"{trusted:,} trusted; {edges * devices:,} device" in content.caption
    assert len(content.legend) == len({subnet.trusted for subnet in topology.subnets})


@pytest.mark.parametrize("tiers", [(1, 1, 1), (2, 3, 4), (4, 6, 5, 7), (10, 50, 2)])
def test_a_deep_network_is_drawn_with_every_tier(tiers):
    topology = Topology.deep(tiers)
    content = drawing(0, topology, [user(topology)])
    json.dumps([content.traces, content.labels])
    servers = list(topology.servers())
    trusted = sum(server.trusted for server in servers)
    assert f"{len(servers):,} edge servers in {topology.depth} tiers, {trusted:,} trusted" in content.caption
    assert {word for word, _ in content.legend} == {"trusted" if each.trusted else "untrusted" for each in servers}
    if fits(topology):
        words = [word for trace in content.traces for word in trace.get("text", [])]
        assert all(any(f"<b>{server.name}</b>" in word for word in words) for server in servers)


@pytest.mark.parametrize("edges", [5, MOST_BARS, 1000])
def test_the_area_of_a_wheel_is_that_of_its_bars(edges):
    sizes = np.random.default_rng(1).integers(1, 9, edges)
    parts_of = [Topology.regular(edges=1, devices=int(size), trust=1.0, seed=1).subnets[0] for size in sizes]
    subnets = [type(each)(f"e{at}", at % 3 == 0, each.distance_m, each.power_dbm) for at, each in enumerate(parts_of)]
    for part in parts(Topology("uneven", tuple(subnets))):
        x, y = part.outline()
        area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
        assert area == pytest.approx(np.sum(part.tops**2 - 1.1**2) * part.width / 2, rel=1e-3)
        assert list(sizes[part.numbers]) == sorted(sizes[part.numbers], reverse=True)


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
