"""What an interval costs: by hand, and against the formulas written out device by device."""

from dataclasses import fields, replace
from math import log2, log10

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.radio import NetworkCosts, fading_power, interval_cost
from h2fdp.streams import Streams
from h2fdp.topology import Compute, Link, Radio, Subnet, Topology

STILL = Radio(fading="none")
# One hertz, noise of a milliwatt, no path loss: a device of 10 log10(x) dBm has a signal-to-noise ratio of x.
PLAIN = Radio(bandwidth_hz=1.0, noise_dbm_per_hz=0.0, pathloss_db=0.0, pathloss_exponent=0.0, fading="none")
THREE = 10 * log10(3)  # R = log2(1 + 3) = 2 bits a second


def cost(topology, subnets, rows, segments, bits=8, seed=1, interval=0):
    radio = replace(topology.radio, bits_per_parameter=1)
    network = replace(topology, radio=radio)
    drawn = NetworkCosts(network, bits, Streams(seed)).drawn(interval)
    return interval_cost(drawn, network, subnets, [np.array(r, dtype=np.int64) for r in rows], segments)


def everybody(topology, segments, **options):
    rows = [range(size) for size in topology.sizes]
    return cost(topology, range(topology.edges), rows, [segments] * topology.edges, **options)


def two_devices(access="tdma", compute=Compute(), powers=(THREE, THREE)):  # noqa: B008 - frozen
    link = Link(rate_bps=8.0, power_dbm=30.0)  # one watt
    return Topology("net", (Subnet("a", True, [1.0, 1.0], powers, link),), replace(PLAIN, access=access), compute)


def test_by_hand():
    """8 bits: t = 4 s and e = 0.003 W * 4 s; tbar = 1 s and ebar = 1 J. One local and one global aggregation."""
    found = everybody(two_devices(compute=Compute(seconds_per_step=0.5, joules_per_step=0.25)), (3, 2))
    e = 0.012
    assert found.local_energy_j == pytest.approx([2 * e])
    assert found.global_energy_j == pytest.approx([2 * e + 1])
    assert found.compute_energy_j == pytest.approx([0.25 * 5 * 2])
    assert found.wired_energy_j == pytest.approx([1])
    assert found.device_energy_j == pytest.approx([2 * e + 1.25] * 2)
    assert found.energy_j == pytest.approx(4 * e + 1 + 2.5)
    assert found.local_delay_s == pytest.approx([8])
    assert found.global_delay_s == pytest.approx([2 * (5 + 5)])  # tbar counts once for each active device
    assert found.device_delay_s == pytest.approx([14, 14])
    assert found.delay_s == pytest.approx(28)
    assert found.clock_s == pytest.approx(5 * 0.5 + 2 * (8 + 4) + 2)


def test_shared_bandwidth_by_hand():
    """Two devices on half a hertz each see half the noise: R = 1/2 log2(1 + 6)."""
    found = everybody(two_devices("ofdma"), (1, 1))
    assert found.clock_s == pytest.approx(2 * (8 / (0.5 * log2(7)) + 4) + 2, rel=1e-12)


def test_shared_bandwidth_waits_for_the_slowest():
    """Ratios 3 and 1: uplink at 1/2 log2(1 + 2), broadcast at log2(1 + 1)."""
    found = everybody(two_devices("ofdma", powers=(THREE, 0.0)), (1,))
    assert found.clock_s == pytest.approx(8 / (0.5 * log2(3)) + 8 + 2, rel=1e-12)


def test_access_changes_the_clock_alone():
    in_turn, at_once = everybody(two_devices("tdma"), (1, 1)), everybody(two_devices("ofdma"), (1, 1))
    assert (in_turn.energy_j, in_turn.delay_s) == (at_once.energy_j, at_once.delay_s)
    assert in_turn.clock_s != at_once.clock_s


@given(devices=st.integers(1, 30), power=st.floats(-60, 60), aggregations=st.integers(1, 4))
def test_equal_devices_are_never_slower_at_once_than_in_turn(devices, power, aggregations):
    def clock(access):
        subnet = Subnet("a", True, [1.0] * devices, [power] * devices)
        return everybody(Topology("net", (subnet,), replace(PLAIN, access=access)), (1,) * aggregations).clock_s

    assert clock("ofdma") <= clock("tdma") * (1 + 1e-12)


def test_alone_on_the_air_access_makes_no_difference():
    clocks = [cost(two_devices(access), [0], [[1]], [(1, 1)]).clock_s for access in ("tdma", "ofdma")]
    assert clocks[0] == pytest.approx(clocks[1], rel=1e-15)


def test_subnets_work_side_by_side():
    """The slowest subnet and the slowest link, which need not be the same subnet's."""
    slow_air = Subnet("a", True, [1.0] * 2, [THREE] * 2, Link(float("inf")))
    slow_wire = Subnet("b", True, [1.0], [THREE], Link(0.5))
    found = everybody(Topology("net", (slow_air, slow_wire), PLAIN), (4,))
    assert found.clock_s == pytest.approx((8 + 4) + 2 * 16)


def test_a_subnet_without_active_devices_costs_nothing():
    topology = replace(Topology.regular(edges=3, devices=2), compute=Compute(1.0, 1.0))
    found = cost(topology, [2, 0, 1], [[0, 1], [], [1]], [(2, 2), (5,), (3,)])
    for name in ("local_energy_j", "global_energy_j", "compute_energy_j", "wired_energy_j", "global_delay_s"):
        assert getattr(found, name)[0] == 0.0
    assert (found.device_energy_j > 0).tolist() == [False, False, False, True, True, True]
    without = cost(topology, [2, 1], [[0, 1], [1]], [(2, 2), (3,)])
    for each in fields(found):
        assert np.array_equal(getattr(found, each.name), getattr(without, each.name)), each.name


@pytest.mark.parametrize(("subnets", "rows"), [([], []), ([1], [[]])])
def test_an_interval_without_anybody_costs_nothing(subnets, rows):
    found = cost(Topology.regular(edges=2, devices=2), subnets, rows, [(1,)] * len(subnets))
    assert (found.energy_j, found.delay_s, found.clock_s) == (0.0, 0.0, 0.0)
    assert found.device_energy_j.tolist() == [0.0] * 4


def test_rows_of_another_subnet_are_a_mistake():
    with pytest.raises(AssertionError, match="rows"):
        cost(Topology.regular(edges=2, devices=2), [0], [[2]], [(1,)])


@given(factor=st.integers(1, 50), seed=st.integers(0, 100))
def test_energy_delay_and_clock_grow_linearly_in_the_message(factor, seed):
    topology = Topology.regular(edges=3, devices=2)
    one, many = (everybody(topology, (2, 2), bits=bits, seed=seed) for bits in (1000, 1000 * factor))
    assert many.energy_j == pytest.approx(factor * one.energy_j, rel=1e-12)
    assert many.delay_s == pytest.approx(factor * one.delay_s, rel=1e-12)
    assert many.clock_s == pytest.approx(factor * one.clock_s, rel=1e-12)


def test_a_star_pays_the_wire_for_each_device_where_a_tree_pays_once_for_a_subnet():
    tree = replace(Topology.regular(edges=3, devices=4), radio=STILL)
    of_tree, of_star = everybody(tree, (20,)), everybody(tree.as_star(), (20,))
    wire = 10**0.8 * 8 / 1e8
    assert of_star.energy_j == pytest.approx(of_tree.energy_j + 3 * (4 - 1) * wire, rel=1e-12)
    assert of_star.wired_energy_j == pytest.approx([12 * wire], rel=1e-12)
    assert of_star.delay_s == pytest.approx(of_tree.delay_s, rel=1e-12)  # D_Glob counts tbar for each device anyway
    assert of_star.device_energy_j == pytest.approx(of_tree.device_energy_j, rel=1e-12)
    assert of_star.device_delay_s == pytest.approx(of_tree.device_delay_s, rel=1e-12)


def test_in_a_star_the_clock_waits_for_the_slowest_active_relay():
    slow, fast = Subnet("a", True, [1.0], [THREE], Link(0.5)), Subnet("b", True, [1.0], [THREE], Link(4.0))
    star = Topology("net", (slow, fast), PLAIN).as_star()
    assert everybody(star, (1,)).clock_s == pytest.approx((8 + 4) + 2 * 16)
    assert cost(star, [0], [[1]], [(1,)]).clock_s == pytest.approx((4 + 4) + 2 * 2)


@st.composite
def networks(draw):
    rates = st.floats(1e3, 1e9) | st.just(float("inf"))
    subnets = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        lists = [draw(st.lists(kind, min_size=size, max_size=size)) for kind in (st.floats(1, 2e3), st.floats(0, 40))]
        subnets.append(Subnet(f"edge-{number}", True, *lists, Link(draw(rates), draw(st.floats(0, 50)))))
    radio = Radio(
        bandwidth_hz=draw(st.floats(1e3, 1e8)),
        access=draw(st.sampled_from(["tdma", "ofdma"])),
        fading=draw(st.sampled_from(["rayleigh", "none"])),
        bits_per_parameter=1,
    )
    compute = Compute(draw(st.floats(0, 10)), draw(st.floats(0, 10)))
    topology = Topology("net", tuple(subnets), radio, compute)
    return topology.as_star() if draw(st.booleans()) else topology


@st.composite
def plans(draw):
    topology = draw(networks())
    subnets = draw(st.lists(st.integers(0, topology.edges - 1), unique=True))
    rows = [sorted(draw(st.sets(st.integers(0, topology.subnets[c].size - 1)))) for c in subnets]
    segments = [draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)) for _ in subnets]
    return topology, subnets, rows, segments


@settings(max_examples=200)
@given(plan=plans(), seed=st.integers(0, 2**32), interval=st.integers(0, 1000), bits=st.integers(1, 10**8))
def test_agrees_with_the_formulas_written_out(plan, seed, interval, bits):
    topology, subnets, rows, segments = plan
    found = cost(topology, subnets, rows, segments, bits, seed, interval)
    written = written_out(topology, subnets, rows, segments, bits, fading_power(topology, Streams(seed), interval))
    for name, value in written.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=0), name
    assert found.energy_j == pytest.approx(found.device_energy_j.sum() + found.wired_energy_j.sum(), rel=1e-9)
    parts = found.local_energy_j + found.global_energy_j + found.compute_energy_j
    assert found.energy_j == pytest.approx(parts.sum(), rel=1e-9)
    assert found.delay_s == pytest.approx(found.device_delay_s.sum(), rel=1e-9)
    assert found.delay_s == pytest.approx((found.local_delay_s + found.global_delay_s).sum(), rel=1e-9)


def written_out(topology, subnets, rows, segments, bits, fading):
    """H2FDP, Appendix D, in loops over devices, from powers and distances."""
    radio, compute = topology.radio, topology.compute
    local_energy, global_energy, local_delay, global_delay = ([0.0] * topology.edges for _ in range(4))
    of_devices, clocks, round_trips = [0.0] * topology.devices, [0.0], [0.0]
    of_compute = 0.0
    for c, active, lengths in zip(subnets, rows, segments, strict=True):
        if not active:
            continue
        subnet, steps, aggregations = topology.subnets[c], sum(lengths), len(lengths)
        first = sum(other.size for other in topology.subnets[:c])
        wire = bits / subnet.link.rate_bps
        global_energy[c] += 10 ** (subnet.link.power_dbm / 10 - 3) * wire
        times, shared_times = [], []
        for j in active:
            power = 10 ** (subnet.power_dbm[j] / 10 - 3)
            gain = (
                10 ** (radio.pathloss_db / 10) * (subnet.distance_m[j] / radio.reference_m) ** -radio.pathloss_exponent
            )
            noise = 10 ** (radio.noise_dbm_per_hz / 10 - 3)

            def rate(width, signal=power * gain * fading[first + j], density=noise):
                return width * np.log1p(signal / (density * width)) / np.log(2)

            t = bits / rate(radio.bandwidth_hz)
            times.append(t)
            shared_times.append(bits / rate(radio.bandwidth_hz / len(active)))
            relay = 0.0 if subnet.relay_rate_bps is None else bits / subnet.relay_rate_bps[j]
            relay_energy = 0.0 if relay == 0 else 10 ** (subnet.relay_power_dbm[j] / 10 - 3) * relay
            local_energy[c] += (aggregations - 1) * power * t
            global_energy[c] += power * t + relay_energy
            local_delay[c] += (aggregations - 1) * t
            global_delay[c] += 2 * (t + relay + wire)
            of_devices[first + j] = aggregations * power * t + steps * compute.joules_per_step
            of_compute += steps * compute.joules_per_step
            round_trips.append(2 * (relay + wire))
        uplink = sum(times) if radio.access == "tdma" else max(shared_times)
        clocks.append(sum(length * compute.seconds_per_step + uplink + max(times) for length in lengths))
    return {
        "energy_j": sum(local_energy) + sum(global_energy) + of_compute,
        "delay_s": sum(local_delay) + sum(global_delay),
        "clock_s": max(clocks) + max(round_trips),
        "local_energy_j": local_energy,
        "global_energy_j": global_energy,
        "local_delay_s": local_delay,
        "global_delay_s": global_delay,
        "device_energy_j": of_devices,
    }
