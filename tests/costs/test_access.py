"""What shares of the bandwidth, and sums over the air, change of an interval's cost: by hand, and by quadrature."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import exp1

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts, fading_power
from h2fdp.network import Radio, Topology
from h2fdp.streams import Streams
from tests.costs.plans import PLAIN, THREE, Failing, cost, everybody, tasks_of
from tests.networks import placed

HALF = 8 / (0.5 * np.log2(7))  # seconds of 8 bits over half a hertz


def network(access, powers=(THREE, THREE), **of_steps):
    subnet = placed("a", True, [1.0] * len(powers), list(powers))
    return Topology("net", (subnet,), replace(PLAIN, access=access)).with_devices(**of_steps)


def shared(shares):
    return {"name": "ofdma", "shares": shares}


def test_energy_and_delay_follow_stated_shares_and_the_clock_is_as_without():
    plain, equal = (everybody(network(access), (2, 3)) for access in ("ofdma", shared("equal")))
    assert equal.clock_s == plain.clock_s
    assert plain.device_energy_j == pytest.approx([2 * 0.003 * 4] * 2)
    assert equal.device_energy_j == pytest.approx([2 * 0.003 * HALF] * 2)
    assert plain.device_delay_s == pytest.approx([2 * 4 + 4] * 2, rel=1e-4)  # and the wires'
    assert equal.device_delay_s - plain.device_delay_s == pytest.approx([2 * (HALF - 4)] * 2)
    assert equal.energy_j == pytest.approx(equal.device_energy_j.sum() + equal.wired_energy_j.sum())
    assert equal.delay_s == pytest.approx(equal.device_delay_s.sum())


def test_shares_follow_who_is_there():
    """The second device drops out before the global aggregation, at which the first has the whole band."""
    failing = [Failing(np.array([[True, True], [True, False]]), np.array([2, 1]))]
    for access in (shared("equal"), {"name": "experiments.parts.bands:EqualTime"}):
        found = cost(network(access), [0], [[0, 1]], [(1, 1)], failing=failing)
        assert found.device_energy_j == pytest.approx([0.003 * (HALF + 4), 0.003 * HALF])


def test_a_network_whose_subnets_aggregate_unequally_often_is_billed_for_each():
    one = placed("a", True, [1.0] * 2, [THREE] * 2)
    both = Topology("net", (one, replace(one, name="b")), replace(PLAIN, access=shared("equal")))
    found = cost(both, [0, 1], [[0, 1], [0, 1]], [(1, 1, 1), (3,)])
    assert found.device_energy_j == pytest.approx([3 * 0.003 * HALF] * 2 + [0.003 * HALF] * 2)


AIR = {"name": "over-the-air", "truncate_db": 0}


def test_alone_over_a_channel_of_one_number_a_use_it_is_the_plain_channel():
    """At a signal-to-noise ratio of 3 a use of the channel carries two bits: those of a number here."""
    costs = []
    for access in ("tdma", AIR):
        made = network(access, [THREE])
        radio = replace(made.radio, bits_per_parameter=2)
        drawn = NetworkCosts(replace(made, radio=radio), 4, Streams(1)).drawn(0)
        costs.append(interval_cost(drawn, made, tasks_of([0], [[0]], [(1, 1)])))
    for name in ("energy_j", "delay_s", "clock_s", "bytes"):
        assert getattr(costs[1], name) == pytest.approx(getattr(costs[0], name), rel=1e-12), name


@pytest.mark.parametrize("devices", [1, 5, 50])
def test_the_time_of_a_sum_does_not_depend_on_how_many_devices_send(devices):
    """8 numbers of 1 bit: 8 uses of a channel of 1 hertz, and 4 seconds down; with OFDMA it grows with the devices."""
    found = everybody(network(AIR, [THREE] * devices), (1,))
    assert found.clock_s == pytest.approx(8 + 4, rel=1e-4)
    assert everybody(network("ofdma", [THREE] * devices), (1,)).clock_s == pytest.approx(
        8 * devices / np.log2(1 + 3 * devices) + 4, rel=1e-4
    )


def test_all_are_heard_alike_and_the_weakest_sends_with_all_it_has():
    found = NetworkCosts(network(AIR, [3.0, 10.0, 20.0]), 8, Streams(1)).drawn(0)
    assert found.power_dbm == pytest.approx([3.0] * 3)  # all channels are alike here
    assert found.snr == pytest.approx([10**0.3] * 3)
    far = Radio(access=AIR, fading="none")
    subnet = placed("a", True, [10.0, 100.0], [20.0, 30.0])
    found = NetworkCosts(Topology("net", (subnet,), far), 8, Streams(1)).drawn(0)
    assert found.power_dbm == pytest.approx([30.0 - 37.5, 30.0])


@pytest.mark.parametrize(("truncate_db", "floor_db"), [(-10.0, -20.0), (-3.0, -20.0), (-15.0, -5.0)])
def test_the_mean_energy_of_truncated_inversion_is_an_exponential_integral(truncate_db, floor_db):
    """E[1 / |u|^2] of those who send, |u|^2 exponential and at least the floor: by quadrature, in closed form."""
    access = {"name": "over-the-air", "truncate_db": truncate_db}
    radio = Radio(access=access, fading_floor_db=floor_db)
    subnet = placed("a", True, [10.0, 30.0, 80.0], [20.0, 20.0, 24.0])
    costs = NetworkCosts(Topology("net", (subnet,), radio), 1000, Streams(3))
    theta, floor = 10 ** (truncate_db / 10), 10 ** (floor_db / 10)
    least = max(theta, floor)
    inverse, _ = quad(lambda x: np.exp(-x) / x, least, np.inf)
    assert inverse == pytest.approx(exp1(least), rel=1e-7)
    sending = np.exp(-least)
    if floor >= theta:
        inverse, sending = inverse + -np.expm1(-floor) / floor, 1.0
    gain = 10 ** ((-30 - 37.5 * np.log10([10.0, 30.0, 80.0])) / 10)
    watts = 10 ** (np.array([20.0, 20.0, 24.0]) / 10 - 3)
    heard = theta * (gain * watts).min()
    expected = heard / gain * inverse / sending * 1000 / 1e6
    assert costs.expected().joules == pytest.approx(expected, rel=1e-8)
    assert costs.expected().seconds == pytest.approx([1e-3] * 3)
    drawn = [costs.drawn(interval) for interval in range(4000)]
    joules = np.array([each.joules for each in drawn])
    sends = np.array([costs.sends(interval) for interval in range(4000)])
    assert (joules[~sends] == 0).all()
    assert sends.mean(axis=0) == pytest.approx([sending] * 3, abs=0.03)
    assert joules.sum(axis=0) / sends.sum(axis=0) == pytest.approx(expected, rel=0.1)
    assert max(float(each.power_dbm.max()) for each in drawn) <= 24 + 1e-9
    fading = fading_power(Topology("net", (subnet,), radio), Streams(3), 7)
    assert costs.sends(7).tolist() == (fading >= theta).tolist()


def test_other_accesses_keep_nobody_from_sending():
    assert NetworkCosts(network("ofdma"), 8, Streams(1)).sends is None
