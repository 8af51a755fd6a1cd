"""What secure sums add to an interval's messages: by hand, message by message, and in Bonawitz et al.'s own numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes, Tasks
from h2fdp.network import Aggregator, Topology, Wire
from h2fdp.streams import Streams
from tests.costs.plans import PLAIN, THREE, cost
from tests.networks import placed

# A message of 8 bits takes 4 s and 12 mJ. A key of 2 bits takes 1 s, a share of 1 bit half a second.
E = 0.012
SIZES = ExchangeSizes.of_bits(key=2, share=1, vector=8, message=8)


def network(access="tdma", size=2):
    link = Wire(rate_bps=8.0, power_dbm=30.0)  # one second, one watt
    radio = replace(PLAIN, access=access)
    return Topology(
        "net",
        (placed("a", "secure-sum", [1.0] * size, [THREE] * size, link),),
        radio,
    ).with_devices(seconds_per_step=0.5, joules_per_step=0.25)


def billed(topology, tasks):
    costs = NetworkCosts(replace(topology, radio=replace(topology.radio, bits_per_parameter=1)), 8, Streams(1)).drawn(0)
    return interval_cost(costs, topology, {0: tasks}, sums=SIZES)


def test_keys_shares_and_masks_by_hand():
    """Each of two sends two keys and two shares (3 s), receives two keys (2 s) and two shares (1 s), sends its vector
    (4 s), and a share for each of the two (1 s): 8 s up, 3 s down, once at each aggregation."""
    found = billed(network(), Tasks.planned(np.arange(2), (3, 2), masked=True))
    assert found.device_energy_j == pytest.approx([4 * E + 1.25] * 2)  # 8 s at 3 mW are two messages
    assert found.energy_j == pytest.approx(8 * E + 1 + 2.5)
    assert found.delay_s == pytest.approx(2 * (8 + 3) + 2 * (2 * (4 + 1) + 4 + 3))
    assert found.device_delay_s == pytest.approx([11 + 17] * 2)
    # One after the other: keys and shares 2 * 3 s, all keys at once to both 2 s, shares 2 * 1 s, vectors 2 * 4 s, the
    # shares that open the sum 2 * 1 s, the new model 4 s.
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (6 + 2 + 2 + 8 + 2 + 4) + 2)


def test_who_vanishes_has_exchanged_keys_and_a_sum_that_is_not_opened_costs_its_vectors():
    """Device 1 is gone in the second segment; the sum of device 2 alone is not opened, so nothing goes on."""
    tasks = Tasks(np.arange(2), (3, 2), np.array([[3, 3], [0, 2]]), np.array([1, 0]), masked=True)
    found = billed(network(), tasks.opening(np.array([True, False])))
    assert found.device_energy_j == pytest.approx([(2 + 0.75) * E + 4 * 0.25, (2 + 0.75 + 1) * E + 5 * 0.25])
    assert found.wired_energy_j == pytest.approx([1])  # the first sum goes on to the cloud
    assert found.delay_s == pytest.approx(2 * (8 + 3) + 2 * (3 + 3) + 4)
    assert found.clock_s == pytest.approx(5 * 0.5 + 24 + (6 + 2 + 2 + 4) + 2)


@given(devices=st.integers(1, 200), key=st.integers(1, 1000), share=st.integers(1, 1000), vector=st.integers(1, 10**6))
def test_a_device_exchanges_what_the_paper_counts(devices, key, share, vector):
    """2 n a_K + (5 n - 4) a_S + m log2 R bits (Bonawitz et al. 2017, Sec. 7.1)."""
    sizes = ExchangeSizes.of_bits(key=key, share=share, vector=vector, message=1)
    tasks = Tasks.planned(np.arange(devices), (1,), masked=True)
    exchanged = 1 + tasks.exchanged("sent_more", sizes) + tasks.exchanged("received_more", sizes)
    assert exchanged == pytest.approx(2 * devices * key + (5 * devices - 4) * share + vector, rel=1e-9)
    assert sizes.keys_and_shares(devices) == 2 * devices * key + (5 * devices - 4) * share


def test_children_of_a_region_and_of_the_cloud_exchange_keys_and_shares_by_wire():
    """A message takes 1 s and 1 J on the wires of a and b to their region and 2 s and 2 J on that of the region; c is
    below the cloud, 4 s and 4 J. Of two parties each sends two keys and two shares, and two shares in the end: a
    message of 8 bits; it receives 6 bits. Once at the region, once on the way to the cloud at both."""

    def wire(seconds):
        return Wire(8 / seconds, 30.0 + 0.0)

    subnets = tuple(
        placed(name, "untrusted", [1.0], [THREE], wire(seconds), parent=parent)
        for name, seconds, parent in (("a", 1, "r"), ("b", 1, "r"), ("c", 4, None))
    )
    topology = Topology("net", subnets, PLAIN, aggregators=(Aggregator("r", "secure-sum", wire(2)),))
    plain, summed = (
        cost(topology, range(3), [[0]] * 3, [(1, 1)] * 3, heights=(2, 3), sums=SIZES, summing=summing)
        for summing in ((), ("r", None))
    )
    assert plain.energy_j == pytest.approx(6 * E + (1 + 1) * 2 + 2 + 4)
    assert summed.energy_j - plain.energy_j == pytest.approx(2 * (1 + 1) + 2 + 4)
    assert summed.wired_energy_j.tolist() == pytest.approx([4, 4, 8])
    assert summed.aggregator_energy_j.tolist() == pytest.approx([4])
    # Both go through the region twice, 1.75 s more each, and wait for c, whose 4 s wire takes 7 s more.
    assert plain.clock_s == pytest.approx(2 * 8 + 2 * 2 + 2 * 4)
    assert summed.clock_s == pytest.approx(plain.clock_s + 2 * 1.75 + 4 * 1.75)
    assert summed.delay_s == plain.delay_s


def relayed(tasks):
    """Two devices at `a`, whose wire takes 1 s and 1 J for a message, and one at `b`, 2 s and 2 J; one sum of three."""
    subnets = tuple(
        placed(name, "relay", [1.0] * size, [THREE] * size, Wire(8 / seconds, 30.0))
        for name, size, seconds in (("a", 2, 1), ("b", 1, 2))
    )
    star = Topology("net", subnets, replace(PLAIN, access="tdma")).as_star("relay")
    star = star.with_devices(seconds_per_step=0.5, joules_per_step=0.25)
    return billed(star, tasks)


def test_relays_pass_on_keys_and_shares_of_each_device_and_one_vector_of_all_by_hand():
    """Each of three sends two keys and four shares (a message), receives as much (keys) and half (shares), sends its
    vector, and three shares in the end (3/8): 2.375 messages up, 1.5 down, over the air and over the wire; but `a` adds
    its two vectors up and sends one."""
    found = relayed(Tasks.planned(np.arange(3), (1,), masked=True))
    assert found.device_energy_j == pytest.approx([2.375 * E + 0.25] * 3)
    assert found.wired_energy_j == pytest.approx([(2 * 1.375 + 1) * 1 + (1.375 + 1) * 2])
    assert found.energy_j == pytest.approx(3 * (2.375 * E + 0.25) + 8.5)
    assert found.bytes == pytest.approx(3 * 2.375 + 3 * 1.375 + 2)
    assert found.device_delay_s == pytest.approx([2.875 * 5 + 2 * 5] * 2 + [2.875 * 6 + 2 * 6])
    assert found.delay_s == pytest.approx(2 * 24.375 + 29.25)
    # At `a`, in turns: vectors 8 s, a model 4 s; keys and shares up 8 s, all keys 4 s, shares down 4 s, in the end 3 s;
    # on the wire 2 s, 1 s, 1 s and 3/4 s. The vector and the model wait for the wire of `b`, 2 s each.
    assert found.clock_s == pytest.approx(0.5 + 12 + 19 + 4.75 + 4)


def test_relays_of_a_sum_that_is_not_opened_have_sent_one_vector_each():
    """The second device of `a` vanishes."""
    tasks = Tasks(np.arange(3), (1,), np.array([[1, 0, 1]]), np.array([0, 1, 0]), masked=True)
    found = relayed(tasks.opening(np.array([False])))
    assert found.device_energy_j == pytest.approx([2 * E + 0.25, E + 0.25, 2 * E + 0.25])
    assert found.wired_energy_j == pytest.approx([(2 + 1) * 1 + (1 + 1) * 2])
