"""What an interval costs in a tree and in its star: by hand, and against the formulas written out."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts, fading_power
from h2fdp.costs.traffic import ExchangeSizes
from h2fdp.network import Aggregator, Topology, Wire
from h2fdp.streams import Streams
from tests.costs.plans import PLAIN, THREE, Failing, cost, everybody, failures, plans, tasks_of, trees, written_out
from tests.networks import placed


def two_devices(access="tdma", powers=(THREE, THREE), **of_steps):
    link = Wire(rate_bps=8.0, power_dbm=30.0)  # one watt
    network = Topology("net", (placed("a", True, [1.0, 1.0], powers, link),), replace(PLAIN, access=access))
    return network.with_devices(**of_steps)


def test_by_hand():
    """8 bits: t = 4 s and e = 0.003 W * 4 s; tbar = 1 s and ebar = 1 J. One local and one global aggregation."""
    found = everybody(two_devices(seconds_per_step=0.5, joules_per_step=0.25), (3, 2))
    e = 0.012
    assert found.compute_energy_j == pytest.approx([0.25 * 5 * 2])
    assert found.wired_energy_j == pytest.approx([1])
    assert found.device_energy_j == pytest.approx([2 * e + 1.25] * 2)
    assert found.energy_j == pytest.approx(4 * e + 1 + 2.5)
    assert found.device_delay_s == pytest.approx([14, 14])
    assert found.delay_s == pytest.approx(8 + 2 * (5 + 5))  # tbar counts once for each active device
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (8 + 4) + 2)


def test_compressed_messages_by_hand():
    """8 bits down; 2 from a device, 1 s and 0.003 J; 4 from the edge server, 1/2 s and 1/2 J, and 1 s back down."""
    network = two_devices(seconds_per_step=0.5, joules_per_step=0.25)
    shorter = (lambda bits, size: bits / 4), (lambda bits, size: bits / 2)
    radio = replace(network.radio, bits_per_parameter=1)
    costs = NetworkCosts(replace(network, radio=radio), 8, Streams(1), None, None, *shorter).drawn(0)
    found = interval_cost(costs, network, tasks_of([0], [[0, 1]], [(3, 2)]))
    assert found.device_energy_j == pytest.approx([2 * 0.003 + 1.25] * 2)
    assert found.wired_energy_j == pytest.approx([0.5])
    assert found.delay_s == pytest.approx(2 * 1 + 2 * (1 + 0.5 + 1 + 4))  # up, up, down, down
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (2 * 1 + 4) + 0.5 + 1)
    assert found.bytes == pytest.approx((4 * 2 + 4) / 8)


def test_models_that_are_smaller_on_their_way_down_by_hand():
    """8 bits up: 4 s and 0.012 J from a device, 1 s and 1 J on the wire. 4 down take half of the time, and no joule
    less is spent, as nothing that comes down has any."""
    network = two_devices(seconds_per_step=0.5, joules_per_step=0.25)
    radio = replace(network.radio, bits_per_parameter=1)
    drawn = [
        NetworkCosts(replace(network, radio=radio), 8, Streams(1), **more).drawn(0)
        for more in ({}, {"downlink": lambda bits, size: bits / 2})
    ]
    plain, found = (interval_cost(costs, network, tasks_of([0], [[0, 1]], [(3, 2)])) for costs in drawn)
    assert (found.energy_j, found.bytes) == (plain.energy_j, plain.bytes)
    assert found.delay_s == pytest.approx(8 + 2 * (4 + 1 + 0.5 + 2))  # up, up, down, down
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (8 + 2) + 1 + 0.5)


def test_bytes_are_of_all_that_is_sent_up():
    """Devices and edge servers of two tiers; relays of a star; with keys and shares of a secure sum."""
    assert everybody(two_devices(), (3, 2)).bytes == 4 + 1
    assert everybody(two_devices().as_star(), (3, 2)).bytes == 4 + 2
    subnets = [placed(name, True, [1.0, 1.0], [THREE] * 2, parent="u") for name in "ab"]
    tree = Topology("net", tuple(subnets), PLAIN, aggregators=(Aggregator("u", True),))
    assert everybody(tree, (1, 1, 1), heights=(1, 2, 0)).bytes == 3 * 4 + 2 * 2 + 1
    sizes = ExchangeSizes.of_bits(key=2, share=1, vector=8, message=8)
    assert everybody(two_devices(), (3, 2), masked=True, sums=sizes).bytes == 4 + 1 + 2 * 2 * (2 * 2 + 4 * 1) / 8


def test_shared_bandwidth_by_hand():
    """Two devices on half a hertz each see half the noise: R = 1/2 log2(1 + 6)."""
    found = everybody(two_devices("ofdma"), (1, 1))
    assert found.clock_s == pytest.approx(2 * (8 / (0.5 * log2(7)) + 4) + 2, rel=1e-12)


def test_devices_that_fail_by_hand():
    """Device 1 does 4 of 5 steps and is gone before the global aggregation; device 2 is slow and does 2."""
    of_steps = {"seconds_per_step": 0.5, "joules_per_step": 0.25}
    failing = [Failing(np.array([[True, True], [False, True]]), np.array([4, 2]))]
    found = cost(two_devices(**of_steps), [0], [[0, 1]], [(3, 2)], failing=failing)
    e = 0.012
    assert found.energy_j == pytest.approx(2 * e + (e + 1) + 0.25 * 6)
    assert found.compute_energy_j == pytest.approx([0.25 * 6])
    assert found.device_energy_j == pytest.approx([e + 1, 2 * e + 0.5])
    assert found.delay_s == pytest.approx(8 + 2 * 5)
    # All slots pass; two uploads and a broadcast, then one upload and a broadcast; the wire there and back.
    assert found.clock_s == pytest.approx(5 * 0.5 + (8 + 4) + (4 + 4) + 2)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    plan=plans(),
    seed=st.integers(0, 2**32),
    interval=st.integers(0, 1000),
    bits=st.integers(1, 10**8),
    faults=st.data() | st.none(),
)
def test_agrees_with_the_formulas_written_out(plan, seed, interval, bits, faults):
    topology, subnets, rows, segments = plan
    failing = None if faults is None else faults.draw(failures(rows, segments))
    found = cost(topology, subnets, rows, segments, bits, seed, interval, failing)
    fading = fading_power(topology, Streams(seed), interval)
    written = written_out(topology, subnets, rows, segments, bits, fading, failing)
    for name, value in written.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=0), name
    assert found.energy_j == pytest.approx(found.device_energy_j.sum() + found.wired_energy_j.sum(), rel=1e-9)
    assert found.delay_s == pytest.approx(found.device_delay_s.sum(), rel=1e-9)


def test_in_a_star_the_clock_waits_for_the_slowest_active_access_point_and_relay():
    """Three devices of four seconds: two of them take turns at one access point, beside the third at the other."""
    slow, fast = placed("a", True, [1.0], [THREE], Wire(0.5)), placed("b", True, [1.0] * 2, [THREE] * 2, Wire(4.0))
    star = Topology("net", (slow, fast), PLAIN).as_star()
    assert everybody(star, (1,)).clock_s == pytest.approx((8 + 4) + 2 * 16)
    assert cost(star, [0], [[0, 1]], [(1,)]).clock_s == pytest.approx((4 + 4) + 2 * 16)
    assert cost(star, [0], [[1]], [(1,)]).clock_s == pytest.approx((4 + 4) + 2 * 2)
    shared = replace(star, radio=replace(PLAIN, access="ofdma"))
    assert everybody(shared, (1,)).clock_s == pytest.approx(8 / (0.5 * log2(7)) + 4 + 2 * 16, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=25)
@given(plan=plans(trees()), steps=st.integers(1, 20), seed=st.integers(0, 2**32), bits=st.integers(1, 10**8))
def test_under_one_aggregation_a_star_differs_from_its_tree_by_the_wires_energy_alone(plan, steps, seed, bits):
    tree, subnets, rows, _ = plan
    star, starts = tree.as_star(), np.cumsum(tree.sizes) - tree.sizes
    together = [int(starts[c]) + j for c, active in zip(subnets, rows, strict=True) for j in active]
    of_tree = cost(tree, subnets, rows, [[steps]] * len(subnets), bits, seed)
    of_star = cost(star, [0], [together], [[steps]], bits, seed)
    assert of_star.clock_s == of_tree.clock_s
    for name in ("device_energy_j", "device_delay_s"):
        assert getattr(of_star, name).tolist() == getattr(of_tree, name).tolist(), name
    assert of_star.delay_s == pytest.approx(of_tree.delay_s, rel=1e-12)
    active = np.zeros(tree.edges)
    active[list(subnets)] = [len(of_subnet) for of_subnet in rows]
    assert of_star.wired_energy_j == pytest.approx([of_tree.wired_energy_j @ active], rel=1e-12, abs=0)
    without_wires = [found.energy_j - found.wired_energy_j.sum() for found in (of_tree, of_star)]
    assert without_wires[1] == pytest.approx(without_wires[0], rel=1e-9, abs=1e-12 * of_star.energy_j)
