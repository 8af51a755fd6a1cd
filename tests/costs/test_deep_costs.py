"""What an interval costs where edge servers stand under others: by hand, and by recursion over the tree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.network import Aggregator, Topology, Wire
from tests.costs.plans import PLAIN, THREE, Failing, cost, everybody
from tests.networks import placed


def wire(seconds, watts=1.0):
    """A link over which a message of 8 bits takes so long."""
    return Wire(8 / seconds, 30 + 10 * np.log10(watts))


def subnet(name, size, link, parent=None):
    return placed(name, True, [1.0] * size, [THREE] * size, link, parent=parent)


# A device's message of 8 bits takes 4 s and 12 mJ. cloud - north (2 s, 2 J) - a (1 s, 1 J), b (4 s, 4 J); cloud - c.
NETWORK = Topology(
    "net",
    (subnet("a", 1, wire(1), "north"), subnet("b", 2, wire(4), "north"), subnet("c", 1, wire(8))),
    PLAIN,
    aggregators=(Aggregator("north", True, wire(2)),),
)
EACH_SLOT = (1, 1, 1, 1)


def test_aggregations_at_three_heights_by_hand():
    found = everybody(NETWORK, EACH_SLOT, heights=(1, 2, 1, 3))
    of_devices = 4 * 4 * 0.012
    assert found.energy_j == pytest.approx(of_devices + (1 + 4) + (1 + 4 + 2 + 8))
    assert found.wired_energy_j.tolist() == pytest.approx([2, 8, 8])
    assert found.aggregator_energy_j.tolist() == pytest.approx([2])
    assert found.device_energy_j.tolist() == pytest.approx([0.048] * 4)
    # 4 s at the edge server twice; to north and back; to the cloud and back. Nobody stands above c but the cloud.
    a, b, c = 8 + 2 * (4 + 1) + 2 * (4 + 1 + 2), 8 + 2 * (4 + 4) + 2 * (4 + 4 + 2), 12 + 2 * (4 + 8)
    assert found.device_delay_s.tolist() == pytest.approx([a, b, b, c])
    assert found.delay_s == pytest.approx(a + 2 * b + c)
    # Up in turns and down once: a 8 s, b 12 s, c 8 s. North waits for b twice: 24 + 2 * 4 s. The cloud waits for north,
    # 32 + 24 + 2 * 4 s, then for the slowest of its wires.
    assert found.clock_s == pytest.approx(64 + 2 * 8)


def test_a_server_that_nothing_has_reached_sends_nothing():
    reached = {0: [[False], [False], [True], [False]], 1: [[False] * 2] * 4, 2: [[True]] * 4}
    failing = [Failing(np.array(uploads), np.array([4] * len(uploads[0]))) for uploads in reached.values()]
    rows = [range(1), range(2), range(1)]
    found = cost(NETWORK, range(3), rows, [EACH_SLOT] * 3, failing=failing, heights=(1, 2, 1, 3))
    assert found.wired_energy_j.tolist() == pytest.approx([1, 0, 8])
    assert found.aggregator_energy_j.tolist() == pytest.approx([2])
    only_c = cost(NETWORK, [2], [range(1)], [EACH_SLOT], heights=(1, 2, 1, 3))
    assert only_c.aggregator_energy_j.tolist() == [0]


@st.composite
def deep_plans(draw):
    """Any tree of two to four tiers of edge servers, with heights for a few aggregations."""
    subnets, aggregators = [], []
    seconds = st.floats(0.5, 20)

    def grow(parent, tier):
        for _ in range(draw(st.integers(1, 2))):
            name = f"n{len(subnets) + len(aggregators)}"
            if tier < 4 and draw(st.booleans()):
                aggregators.append(Aggregator(name, True, wire(draw(seconds), draw(seconds)), parent))
                grow(name, tier + 1)
            else:
                subnets.append(subnet(name, draw(st.integers(1, 2)), wire(draw(seconds), draw(seconds)), parent))

    grow(None, 1)
    network = Topology("net", tuple(subnets), PLAIN, aggregators=tuple(aggregators))
    network = network.with_devices(seconds_per_step=draw(st.floats(0, 3)))
    heights = draw(st.lists(st.integers(1, network.depth), max_size=4))
    lengths = tuple(draw(st.integers(1, 5)) for _ in range(len(heights) + 1))
    return network, lengths, (*heights, network.depth + 1)


@settings(max_examples=25, deadline=None)
@given(plan=deep_plans())
def test_any_tree_costs_what_the_recursion_over_it_says(plan):
    network, lengths, heights = plan
    servers = {server.name: server for server in network.servers()}
    joules = dict.fromkeys(servers, 0.0)

    def seconds(name):
        return 8 / servers[name].link.rate_bps

    def at(node, first, stop):
        """When a node has what it averages, and hands it back, of the segments first .. stop - 1."""
        if not network.children(node):
            size = network.subnets[network.below(node)[0]].size
            slots = sum(lengths[first:stop])
            return slots * network.table.columns["seconds_per_step"][0] + (stop - first) * (4 * size + 4)
        clock, begin = 0.0, first
        for end in range(first + 1, stop + 1):
            if end == stop or heights[end - 1] >= network.height(node):
                for child in network.children(node):
                    joules[child] += 10 ** (servers[child].link.power_dbm / 10 - 3) * seconds(child)
                clock += max(at(child, begin, end) for child in network.children(node))
                clock += 2 * max(map(seconds, network.children(node)))
                begin = end
        return clock

    found = everybody(network, lengths, heights=heights)
    assert found.clock_s == pytest.approx(at(None, 0, len(lengths)))
    assert found.wired_energy_j.tolist() == pytest.approx([joules[each.name] for each in network.subnets])
    assert found.aggregator_energy_j.tolist() == pytest.approx([joules[each.name] for each in network.aggregators])
    delays = []
    for each in network.subnets:
        delay = 0.0
        for height in heights:
            above = [name for name in network.path(each.name) if network.height(servers[name].parent) <= height]
            delay += 2 * (4 + sum(map(seconds, above))) if above else 4
        delays += [delay] * each.size
    assert found.device_delay_s.tolist() == pytest.approx(delays)
    assert found.delay_s == pytest.approx(sum(delays))
    assert found.energy_j == pytest.approx(sum(joules.values()) + network.devices * len(lengths) * 0.012)
