"""What one message costs: the paper's constants by hand, means, relays, and what no float can hold."""

from dataclasses import replace
from math import expm1, log2

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from h2fdp.costs.messages import NetworkCosts, fading_power, mean_snr, path_gain_db
from h2fdp.errors import UserError
from h2fdp.network import Radio, Topology, Wire
from h2fdp.streams import Streams
from tests.networks import placed

STILL = Radio(fading="none")
M, Q = 7840, 32


def network_of(*subnets, radio=STILL):
    return Topology("net", subnets or (placed("a", True, [100.0], [24.0]),), radio)


def costs_of(topology, parameters=M, seed=1):
    return NetworkCosts(topology, parameters, Streams(seed))


def test_the_papers_constants_by_hand():
    """100 m: 24 dBm - 105 dB over -113 dBm of noise is 32 dB, so R = 1 MHz log2(1 + 10^3.2) = 10.63 Mbps."""
    costs = costs_of(network_of()).drawn(0)
    rate = 1e6 * log2(1 + 10**3.2)
    assert rate == pytest.approx(10.6311e6, rel=1e-5)
    assert costs.snr == pytest.approx([10**3.2], rel=1e-12)
    assert costs.seconds == pytest.approx([Q * M / rate], rel=1e-12)
    assert costs.seconds == pytest.approx([0.0235987], rel=1e-5)
    assert costs.joules == pytest.approx([10**-0.6 * Q * M / rate], rel=1e-12)
    assert costs.link_seconds == pytest.approx([0.0025088], rel=1e-14)  # 250,880 bits at 100 Mbps
    assert costs.link_joules == pytest.approx([10**0.8 * 0.0025088], rel=1e-14)  # 38 dBm
    assert costs.relay_seconds.tolist() == costs.relay_joules.tolist() == [0.0]


def test_each_device_and_link_has_its_own_power_distance_and_rate():
    costs = costs_of(
        network_of(
            placed("a", True, [10.0, 1000.0], [24.0, 30.0], Wire(1e6, 0.0)),
            placed("b", False, [100.0], [4.0], Wire(float("inf"), 38.0)),
        )
    ).drawn(0)
    snr_db = [69.5, 0.5, 12]
    seconds = [Q * M / (1e6 * log2(1 + 10 ** (db / 10))) for db in snr_db]
    assert costs.seconds == pytest.approx(seconds, rel=1e-12)
    assert costs.joules == pytest.approx([10**-0.6 * seconds[0], seconds[1], 10**-2.6 * seconds[2]], rel=1e-12)
    assert costs.link_seconds == pytest.approx([Q * M / 1e6, 0], rel=1e-14)
    assert costs.link_joules == pytest.approx([1e-3 * Q * M / 1e6, 0], rel=1e-14)


def test_mean_costs_are_those_of_many_draws():
    """A right program fails this over 5 standard errors: once in a million seeds."""
    devices = 100_000
    costs = costs_of(network_of(placed("a", True, [400.0] * devices, [24.0] * devices), radio=Radio()))
    seconds = costs.drawn(0).seconds
    error = seconds.std() / np.sqrt(devices)
    assert costs.expected().seconds[0] == pytest.approx(seconds.mean(), abs=5 * error)
    assert error < 0.01 * seconds.mean()
    assert costs.expected().joules[0] == pytest.approx(10**-0.6 * costs.expected().seconds[0], rel=1e-12)


def test_a_relay_costs_what_the_link_did():
    tree = network_of(
        placed("a", True, [5.0, 6.0], [24.0, 20.0], Wire(1e8, 38.0)),
        placed("b", False, [7.0], [10.0], Wire(float("inf"), 30.0)),
    )
    of_tree, of_star = costs_of(tree).drawn(0), costs_of(tree.as_star()).drawn(0)
    assert of_star.relay_seconds.tolist() == of_tree.link_seconds[[0, 0, 1]].tolist()
    assert of_star.relay_joules.tolist() == of_tree.link_joules[[0, 0, 1]].tolist()
    assert (of_star.link_seconds.tolist(), of_star.link_joules.tolist()) == ([0.0], [0.0])
    assert of_star.seconds.tolist() == of_tree.seconds.tolist()


@pytest.mark.parametrize("radio", [STILL])
@pytest.mark.parametrize(("distance", "power"), [(1e40, 24.0), (1e30, -300.0)])
def test_a_device_whose_costs_no_float_holds_is_named(radio, distance, power):
    radio = replace(radio, pathloss={"exponent": 10.0})
    fine = placed("a", True, [1.0, 1.0], [24.0, 24.0])
    with pytest.raises(UserError, match=r"b/2: .*no finite cost"):
        costs_of(network_of(fine, placed("b", True, [1.0, distance], [24.0, power]), radio=radio))


PAPER = Radio()
FALSE_ALARMS = 1e-6  # how often each statistical test below would fail a right program, over seeds


def alike(*sizes, radio=PAPER, names=("a", "b", "c")):
    subnets = [placed(name, False, [50.0] * size, [24.0] * size) for name, size in zip(names, sizes, strict=False)]
    return Topology("net", tuple(subnets), radio)


@pytest.mark.parametrize(("distance", "gain", "snr_db"), [
    (1, -30, 107),  # 24 dBm - 30 dB - (-173 + 60) dBm
    (10, -67.5, 69.5),
    (100, -105, 32),
    (1000, -142.5, -5.5),
])  # fmt: skip
def test_the_papers_channel_by_hand(distance, gain, snr_db):
    network = Topology("net", (placed("a", False, [float(distance)], [24.0]),))
    assert path_gain_db(network, Streams(1)) == pytest.approx([gain], rel=1e-14)
    assert mean_snr(network, Streams(1)) == pytest.approx([10 ** (snr_db / 10)], rel=1e-12)


def test_each_edge_server_and_interval_has_its_own_stream():
    network = alike(4, 3, radio=replace(PAPER, fading_floor_db=-300.0))
    for interval in (0, 7):
        own = [Streams(5).open(name, "fading", interval).standard_exponential(s) for name, s in (("a", 4), ("b", 3))]
        assert fading_power(network, Streams(5), interval).tolist() == [*own[0], *own[1]]


def test_a_draw_depends_on_no_other_edge_server():
    drawn = fading_power(alike(3, 5, 2), Streams(1), 9)
    assert fading_power(alike(5, names=("b",)), Streams(1), 9).tolist() == drawn[3:8].tolist()
    assert fading_power(alike(2, 5, names=("c", "b")), Streams(1), 9).tolist() == [*drawn[8:], *drawn[3:8]]


def test_fading_is_exponential_above_its_floor():
    floor = 0.01
    drawn = fading_power(alike(100_000, 100_000), Streams(11), 0)
    above = drawn[drawn > floor] - floor  # exponential again, as it has no memory
    assert kstest(above, "expon").pvalue > FALSE_ALARMS
    for wrong in (2 / 3, 3 / 2):
        assert kstest(above * wrong, "expon").pvalue < FALSE_ALARMS


@pytest.mark.parametrize("floor_db", [-20.0, -3.0])
def test_the_floor_is_honoured_and_takes_its_share_of_the_draws(floor_db):
    floor = 10 ** (floor_db / 10)
    drawn = fading_power(alike(100_000, radio=replace(PAPER, fading_floor_db=floor_db)), Streams(3), 0)
    assert drawn.min() == pytest.approx(floor, rel=1e-14)
    floored = int((drawn == drawn.min()).sum())
    assert binomtest(floored, len(drawn), -expm1(-floor)).pvalue > FALSE_ALARMS


def test_fading_is_independent_over_devices_edge_servers_and_intervals():
    size = 50_000
    first, second = (fading_power(alike(size, size), Streams(2), interval) for interval in (0, 1))
    bound = 4.9 / np.sqrt(size - 1)  # of a normal correlation at FALSE_ALARMS
    pairs = [(first[:size], first[size:]), (first[:size], second[:size]), (first[: size - 1], first[1:size])]
    for one, other in pairs:
        assert abs(np.corrcoef(one, other)[0, 1]) < bound
