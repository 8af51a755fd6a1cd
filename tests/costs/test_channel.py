"""Path loss, signal-to-noise ratio and rate by hand; the fading's law, floor and keys."""

from dataclasses import replace
from math import expm1

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from h2fdp.costs import fading_power, mean_snr, path_gain_db
from h2fdp.network import Radio, Topology
from h2fdp.streams import Streams
from tests.networks import placed

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
