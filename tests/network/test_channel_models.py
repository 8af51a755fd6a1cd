"""Path loss, fading and access are choices by name, in a file, from Python, or of the user's own."""

import sys
from itertools import pairwise
from math import log2

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaincinv
from scipy.stats import gamma, kstest

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts, path_gain_db
from h2fdp.costs.traffic import Tasks
from h2fdp.errors import UserError
from h2fdp.network import Radio, Topology, read
from h2fdp.network.channel import FADINGS, Access, Fading, PathLoss, Rayleigh
from h2fdp.streams import Streams
from tests.networks import placed, stored

FALSE_ALARMS = 1e-6


class Exponential(Fading):
    def quantile(self, probability):
        return -np.log1p(-probability)


class Nakagami(Fading):
    """|u|^2 is gamma with shape m and mean 1."""

    def __init__(self, m=2.0):
        self.m = m

    def quantile(self, probability):
        return gammaincinv(self.m, probability) / self.m


class Shadowed(PathLoss):
    def __init__(self, deviation_db=8.0):
        self.deviation_db = deviation_db

    def gain_db(self, distance_m, stream):
        return -20 * np.log10(distance_m) + self.deviation_db * stream.standard_normal(len(distance_m))


class Parallel(Access):
    """Every device has a channel of its own."""

    def uplink_seconds(self, seconds, snr, points, count):
        longest = np.zeros(count)
        np.maximum.at(longest, points, seconds)
        return longest


@pytest.mark.parametrize("fading", [*FADINGS.names, Exponential, Nakagami], ids=str)
def test_every_fading_draws_powers_of_mean_one_and_knows_the_mean_of_its_costs(fading):
    # 200,000 draws: the standard error of their mean is at most 0.0023, so 0.012 fails once in ten million
    radio = Radio(fading=fading, fading_floor_db=-30, bandwidth_hz=10.0)
    powers, snr = radio.fading_power(np.random.default_rng(1), 200_000), np.array([0.5, 20.0])
    assert abs(powers.mean() - 1) < 0.012
    assert powers.min() >= radio.least_fading() >= 1e-3
    means = [np.mean(8 / (10 * np.log2(1 + each * powers))) for each in snr]
    assert radio.mean_seconds(8, snr) == pytest.approx(means, rel=0.05)


@pytest.mark.parametrize("floor", [1e-8, 0.01, 0.7, 3.0])
def test_the_mean_over_a_quantile_is_that_of_the_density(floor):
    ratios = np.logspace(-4, 10, 15)
    assert Exponential().mean_seconds(8, 10.0, ratios, floor) == pytest.approx(
        Rayleigh().mean_seconds(8, 10.0, ratios, floor), rel=1e-8
    )
    law = gamma(2.5, scale=1 / 2.5)
    cost = [lambda x, snr=snr: 0.8 / log2(1 + snr * x) for snr in ratios]
    ends = [floor, *(end for end in (0.1, 1.0, 5.0) if end > floor), 60.0]
    beyond = [
        sum(
            quad(lambda x, each=each: each(x) * law.pdf(x), low, high, epsabs=0, epsrel=1e-12)[0]
            for low, high in pairwise(ends)
        )
        for each in cost
    ]
    means = [law.cdf(floor) * each(floor) + tail for each, tail in zip(cost, beyond, strict=True)]
    assert Nakagami(2.5).mean_seconds(8, 10.0, ratios, floor) == pytest.approx(means, rel=1e-8)


def test_energy_and_delay_of_an_interval_under_ones_own_path_loss_and_access_by_hand():
    """0 dBm over noise of 0 dBm in 1 Hz, 8 bits, and gains of 3 and 15.

    SNR 3: R = log2(4) = 2 bit/s, so a message takes 4 s and 4 mJ; SNR 15: R = 4 bit/s, 2 s and 2 mJ. Two local
    aggregations and the global one, over a link at no cost:

    E = 3 (4 + 2) mJ = 18 mJ; D = 2 (4 + 2) + 2 (4 + 2) = 24 s; each aggregation takes 4 s up side by side, 4 s down.
    """

    class ByTable(PathLoss):
        def gain_db(self, distance_m, stream):
            return 10 * np.log10(np.where(distance_m < 5, 3.0, 15.0))

    radio = Radio(1.0, 0.0, access=Parallel(), fading="none", bits_per_parameter=1, pathloss=ByTable())
    free = Topology.regular(edges=1).as_star().subnets[0].link
    network = Topology("net", (placed("a", True, [1.0, 10.0], [0.0, 0.0], free),), radio)
    drawn = NetworkCosts(network, 8, Streams(1)).drawn(0)
    assert drawn.seconds == pytest.approx([4, 2], rel=1e-12)
    cost = interval_cost(drawn, network, {0: Tasks.planned(np.arange(2), (1, 1, 1))})
    assert cost.energy_j == pytest.approx(0.018, rel=1e-12)
    assert cost.delay_s == pytest.approx(24, rel=1e-12)
    assert cost.clock_s == pytest.approx(3 * (4 + 4), rel=1e-12)


def test_shadowing_is_each_devices_own_for_the_whole_run_and_the_same_in_a_star():
    radio = Radio(pathloss=Shadowed, fading="none")
    subnets = [placed(name, False, [10.0] * 50_000, [24.0] * 50_000) for name in "ab"]
    tree = Topology("net", tuple(subnets), radio)
    gains = path_gain_db(tree, Streams(1))
    assert gains.tolist() == path_gain_db(tree.as_star(), Streams(1)).tolist()
    assert gains[50_000:].tolist() == path_gain_db(Topology("b", (subnets[1],), radio), Streams(1)).tolist()
    costs = NetworkCosts(tree, 10, Streams(1))
    assert costs.drawn(0).seconds.tolist() == costs.drawn(7).seconds.tolist()
    assert (gains != path_gain_db(tree, Streams(2))).all()
    shadows = (gains + 20) / 8
    assert kstest(shadows, "norm").pvalue > FALSE_ALARMS
    for wrong in (2 / 3, 3 / 2):
        assert kstest(shadows * wrong, "norm").pvalue < FALSE_ALARMS
    assert abs(np.corrcoef(shadows[:50_000], shadows[50_000:])[0, 1]) < 4.9 / np.sqrt(50_000)


class Silent(PathLoss):
    def gain_db(self, distance_m, stream):
        return distance_m * np.nan


class Short(PathLoss):
    def gain_db(self, distance_m, stream):
        return -3.0


class Failing(PathLoss):
    def gain_db(self, distance_m, stream):
        return np.log10(distance_m) / stream.nothing


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"pathloss": Silent}, r"Radio: pathloss: expected finite numbers from .*Silent.gain_db, found nan"),
        (
            {"pathloss": Short},
            r"pathloss: expected numbers of shape \(2,\) from .*Short.gain_db, found shape \(\)",
        ),
        (
            {"pathloss": Failing},
            r"Radio: pathloss: .*Failing.gain_db fails: .*test_channel_models.py:\d+: AttributeError",
        ),
    ],
)
def test_what_is_no_channel_is_refused(models, words):
    network = Topology("net", (placed("a", True, [1.0, 2.0], [24.0, 24.0]),), Radio(**models))
    with pytest.raises(UserError, match=words):
        interval_cost(NetworkCosts(network, 8, Streams(1)).drawn(0), network, {0: Tasks.planned(np.arange(2), (1,))})


MODULE = """
import numpy as np
from h2fdp.network import PathLoss

class Linear(PathLoss):
    def __init__(self, slope=1.0, corners=None):
        self.slope, self.corners = slope, corners

    def gain_db(self, distance_m, stream):
        return -self.slope * distance_m
"""


@pytest.fixture
def folder(tmp_path):
    path = list(sys.path)
    (tmp_path / "own_air.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_air", None)
    sys.path[:] = path


def file_of(folder, pathloss, edges="[{name: a, trusted: true, devices: {count: 2}}]"):
    (folder / "net.yaml").write_text(f"name: net\nradio:\n  fading: none\n  pathloss: {pathloss}\nedges: {edges}\n")
    return folder / "net.yaml"


@pytest.mark.parametrize("suffix", ["yaml", "json", "graphml"])
def test_a_model_beside_a_topology_file_survives_every_format(folder, tmp_path_factory, suffix):
    network = read(file_of(folder, '{name: "own_air:Linear", slope: 0.5}'), 1)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / f"net.{suffix}"
    again = read(stored(network, elsewhere), 1)
    assert again == network
    assert path_gain_db(again, Streams(1)).tolist() == [-25.0, -25.0]
    assert again.radio.own_parts[0].name == f"{folder}/own_air:Linear"


@pytest.mark.parametrize(
    ("pathloss", "words"),
    [
        ('"own_air:Liner"', ":4: radio.pathloss: {folder}/own_air.py has no `Liner`"),
        (
            "log-distence",
            ':4: radio.pathloss: expected one of log-distance, or module:Name, found "log-distence"',
        ),
        ("{exponnt: 2}", ":4: radio.pathloss.exponnt: unknown key; did you mean `exponent`?"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(folder, pathloss, words):
    with pytest.raises(UserError) as caught:
        read(file_of(folder, pathloss), 1)
    assert str(caught.value).startswith(f"{folder}/net.yaml" + words.format(folder=folder))
