"""Links as an axis: what a message takes when it is sent, in trees of any depth, in stars, and under buffers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import Tasks
from h2fdp.errors import UserError
from h2fdp.network import Aggregator, Link, Radio, Topology, Wire
from h2fdp.network.links import Series, in_series
from h2fdp.schedules.event_queue import Buffer, Durations, EventQueue
from h2fdp.streams import Streams
from tests.networks import placed

FREE = Wire(float("inf"), 0.0)
BITS = 32 * 10


class Ferry(Link):
    """Leaves every `every` seconds, from 0 on, and takes `takes` for any message."""

    def __init__(self, every=10.0, takes=2.0):
        self.every, self.takes = every, takes

    def seconds(self, bits, at=0.0):
        return -at % self.every + self.takes

    def joules(self, bits):
        return 0.5 * bits


def network(*links, above=(), parents=()):
    """An edge server with one device for each link."""
    parents = itertools.chain(parents, itertools.repeat(None))
    subnets = tuple(
        placed(f"e{at}", True, [20.0 + at], [9.0], link, parent=parent)
        for at, (link, parent) in enumerate(zip(links, parents, strict=False))
    )
    return Topology("net", subnets, Radio(fading="none"), aggregators=tuple(above))


def costs_of(topology, heights=None, began_s=0.0):
    costs = NetworkCosts(topology, 10, Streams(1)).drawn(0)
    segments = (1,) * (1 if heights is None else len(heights))
    tasks = {number: Tasks.planned(np.arange(size), segments) for number, size in enumerate(topology.sizes)}
    return costs, interval_cost(costs, topology, tasks, heights, began_s=began_s)


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("began_s", [0.0, 3.0, 123.4])
def test_a_message_leaves_when_it_is_ready_and_comes_down_when_all_have_arrived(star, began_s):
    """By hand: e0 has a ferry every 10 s, e1 one every 7 s, e2 a wire."""
    ferries = Ferry(10.0, 2.0), Ferry(7.0, 1.0)
    tree = network(*ferries, Wire(BITS, 30.0))
    made = tree.as_star() if star else tree
    costs, cost = costs_of(made, began_s=began_s)
    ready = began_s + (costs.seconds + costs.down_seconds).max()
    up = [*(link.seconds(BITS, ready) for link in ferries), 1.0]
    arrived = ready + max(up)
    down = [*(link.seconds(BITS, arrived) for link in ferries), 1.0]
    assert cost.clock_s == pytest.approx(arrived + max(down) - began_s, rel=1e-12)
    radio = (costs.seconds + costs.down_seconds).sum()
    assert cost.delay_s == pytest.approx(radio + sum(up) + sum(down), rel=1e-12)
    assert cost.energy_j == pytest.approx(costs.joules.sum() + 2 * 0.5 * BITS + 1.0, rel=1e-12)


def test_links_of_a_deep_tree_wait_for_each_other_on_every_tier():
    """A local aggregation at the upper tier, then the global one: each ferry is asked when its message is ready."""
    low, top = Ferry(10.0, 2.0), Ferry(25.0, 3.0)
    tree = network(low, FREE, above=[Aggregator("top", True, top)], parents=["top", "top"])
    costs, cost = costs_of(tree, heights=[2, 3])
    radio = (costs.seconds + costs.down_seconds).max()

    def trip(link, at):
        there = at + link.seconds(BITS, at)
        return there + link.seconds(BITS, there)

    at_top = trip(low, radio) + radio  # the second aggregation's uploads are at the edge server
    assert cost.clock_s == pytest.approx(trip(top, trip(low, at_top)), rel=1e-12)


def test_a_star_of_a_deep_tree_takes_links_one_after_another_in_both_directions():
    low, top = Ferry(10.0, 2.0), Ferry(7.0, 3.0)
    both = in_series([low, top])
    assert isinstance(both, Series)
    at_top = 4.0 + low.seconds(8, 4.0)
    assert both.seconds(8, 4.0) == at_top + top.seconds(8, at_top) - 4.0
    at_low = 4.0 + top.seconds(8, 4.0)
    assert both.down(8, 4.0) == at_low + low.seconds(8, at_low) - 4.0
    assert both.joules(8) == 8.0
    tree = network(low, above=[Aggregator("top", True, top)], parents=["top"])
    assert tree.as_star().subnets[0].relays.links[0].joules(8) == 8.0


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("star", [False, True])
def test_under_buffers_each_message_asks_at_its_own_moment(star, access):
    """Edge servers with one device each, whose uploads the cloud averages as they come: by hand, one after another."""
    ferries, tasks, upload = (Ferry(10.0, 2.0), Ferry(7.0, 1.0)), np.array([1.0, 2.5]), np.array([0.5, 0.25])
    zeros, one = np.zeros(2), Buffer(1)
    more = lambda number, at_s, up: ferries[number].seconds(BITS, at_s)  # noqa: E731
    queue = EventQueue(
        sizes=np.array([2]) if star else np.ones(2, dtype=int),
        points=np.arange(2),
        averages=[1] if star else [1, 1],
        edges=[one] if star else [one, one],
        cloud=one,
        queues=access == "tdma",
        durations=lambda version: Durations(tasks, upload, zeros, np.zeros(1 if star else 2)),
        **({"relay" if star else "link": more}),
    )
    expected = []
    for number, link in enumerate(ferries):
        down = link.seconds(BITS, 0.0)
        begun = down if star else 0.0  # the first model is at the edge servers, and not at devices of a star
        for _ in range(30):
            ready = begun + tasks[number] + upload[number]
            up = link.seconds(BITS, ready)
            expected.append((ready + up, (down + up) / 2, number))
            down = link.seconds(BITS, ready + up)
            begun = ready + up + down
    for arrived, (at_s, way_s, number) in zip(queue, sorted(expected)[:30], strict=False):
        assert arrived.at_s == pytest.approx(at_s, rel=1e-12)
        assert arrived.ways_s[number] == pytest.approx(way_s, rel=1e-12)


def test_wires_are_links_whose_moment_does_not_matter():
    link = Wire(8.0, 30.0)
    assert (link.seconds(8), link.seconds(8, 1e6), link.joules(8)) == (1.0, 1.0, 1.0)
    assert network(link, link).as_star().subnets[0].relays.links == (link, link)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(-1.0, "found -1.0"), (float("inf"), "found inf"), ("soon", "found 'soon'"), (None, "found None")],
)
def test_an_answer_that_is_no_number_of_seconds_is_the_users_mistake(answer, words):
    class Wrong(Ferry):
        def seconds(self, bits, at=0.0):
            return answer

    with pytest.raises(UserError, match=f"expected a finite number of at least 0 from .*Wrong.seconds, {words}"):
        NetworkCosts(network(Wrong()), 10, Streams(1))


def test_an_object_that_is_no_link_is_refused_with_what_it_lacks():
    class Silent:
        def seconds(self, bits, at=0.0):
            return 1.0

    with pytest.raises(UserError, match=r"e0\.link: expected a link, .* has no `joules`"):
        network(Silent())


def test_a_handover_goes_over_a_plain_wire():
    from h2fdp.network.mobility import Mobility

    for handover in (Ferry(), Wire(delay_s=0.1)):
        with pytest.raises(UserError, match=r"mobility\.handover: expected a Wire"):
            Mobility(handover=handover)


def through(windows, sending, at):
    """The moment at which a message has been sent: window after window, as long as each is open."""
    for start, end in windows:
        begins = max(at, start)
        if begins < end:
            if sending <= end - begins:
                return begins + sending
            sending -= end - begins
    return None


@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=8),
    bits=st.integers(1, 60),
    at=st.integers(0, 150),
)
def test_bits_move_within_windows_alone(lengths, bits, at):
    """Gaps and lengths of windows, and messages, in whole seconds, so that ends and starts coincide often."""
    ends = list(itertools.accumulate(gap + length for gap, length in lengths))
    windows = tuple((float(end - length), float(end)) for end, (_, length) in zip(ends, lengths, strict=True))
    link = Wire(1.0, 30.0, 0.25, windows)
    sent = through(windows, bits, at)
    if sent is None:
        with pytest.raises(UserError, match=f"that is ready at {at} s has not ended when the last window does, at"):
            link.seconds(bits, at)
    else:
        assert link.seconds(bits, at) == link.down(bits, at) == sent - at + 0.25
    assert link.joules(bits) == pytest.approx(bits * 1.0)  # 30 dBm are a watt, while it sends


def test_a_delay_alone_is_added_to_a_wire_and_an_infinite_rate_waits_for_its_window():
    assert Wire(10.0, 30.0, 0.5).seconds(20.0, 7.0) == 2.5
    assert Wire(float("inf"), 30.0, 0.5, ((3.0, 4.0),)).seconds(20.0, 1.0) == 2.5
    assert in_series([Wire(10.0, 30.0, 0.5), Wire(10.0)]).seconds(20.0) == 4.5  # not one wire
