"""What one message costs: the paper's constants by hand, means, relays, and what no float can hold."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest

from h2fdp.costs import NetworkCosts
from h2fdp.errors import UserError
from h2fdp.network import Link, Radio, Topology
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
            placed("a", True, [10.0, 1000.0], [24.0, 30.0], Link(1e6, 0.0)),
            placed("b", False, [100.0], [4.0], Link(float("inf"), 38.0)),
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
        placed("a", True, [5.0, 6.0], [24.0, 20.0], Link(1e8, 38.0)),
        placed("b", False, [7.0], [10.0], Link(float("inf"), 30.0)),
    )
    of_tree, of_star = costs_of(tree).drawn(0), costs_of(tree.as_star()).drawn(0)
    assert of_star.relay_seconds.tolist() == of_tree.link_seconds[[0, 0, 1]].tolist()
    assert of_star.relay_joules.tolist() == of_tree.link_joules[[0, 0, 1]].tolist()
    assert (of_star.link_seconds.tolist(), of_star.link_joules.tolist()) == ([0.0], [0.0])
    assert of_star.seconds.tolist() == of_tree.seconds.tolist()


@pytest.mark.parametrize(
    "radio",
    [
        STILL,
    ],
)
@pytest.mark.parametrize(("distance", "power"), [(1e40, 24.0), (1e30, -300.0)])
def test_a_device_whose_costs_no_float_holds_is_named(radio, distance, power):
    radio = replace(radio, pathloss={"exponent": 10.0})
    fine = placed("a", True, [1.0, 1.0], [24.0, 24.0])
    with pytest.raises(UserError, match=r"b/2: .*no finite cost"):
        costs_of(network_of(fine, placed("b", True, [1.0, distance], [24.0, power]), radio=radio))
