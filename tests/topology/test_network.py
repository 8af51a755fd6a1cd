"""The values themselves: subnets, their invariants, and the star."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.topology import Link, Subnet, Topology


def test_arrays_of_a_subnet_cannot_be_changed():
    given = np.ones(3)
    subnet = Subnet("a", True, given, np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        subnet.distance_m[0] = 5
    given[0] = 7
    assert subnet.distance_m[0] == 1


@pytest.mark.parametrize(("distance", "power", "names"), [
    ([], [], None), ([1.0], [1.0, 2.0], None), ([1.0], [1.0], ("a", "b")), ([-1.0], [1.0], None), ([0.0], [1.0], None),
    ([np.nan], [1.0], None), ([1.0], [np.inf], None),
])  # fmt: skip
def test_a_subnet_refuses_what_a_file_could_not_say(distance, power, names):
    with pytest.raises(UserError):
        Subnet("a", True, distance, power, names=names)


def test_a_network_refuses_two_edge_servers_of_one_name():
    subnet = Subnet("a", True, [1.0], [1.0])
    with pytest.raises(UserError, match='two nodes have the name "a"'):
        Topology("net", (subnet, subnet))


def test_a_network_has_an_edge_server():
    with pytest.raises(UserError):
        Topology("net", ())


def test_the_star_holds_every_device_in_order_under_its_name():
    network = Topology.geometric(edges=5, devices=4)
    star = network.as_star()
    (only,) = star.subnets
    assert only.device_names() == [name for subnet in network.subnets for name in subnet.device_names()]
    assert only.distance_m.tolist() == [d for subnet in network.subnets for d in subnet.distance_m]
    assert (only.name, only.trusted, only.link.rate_bps) == ("cloud", False, np.inf)
    assert (star.radio, star.compute, star.name) == (network.radio, network.compute, network.name)


def test_the_star_of_a_star_is_itself():
    star = Topology.regular().as_star()
    assert star.as_star() == star


def test_in_the_star_each_device_keeps_its_way_to_the_cloud():
    network = Topology(
        "net",
        (
            Subnet("a", True, [5.0, 6.0], [24.0, 20.0], Link(1e8, 38.0)),
            Subnet("b", False, [7.0], [10.0], Link(5e6, 30.0)),
        ),
    )
    (only,) = network.as_star().subnets
    assert only.relay_rate_bps.tolist() == [1e8, 1e8, 5e6]
    assert only.relay_power_dbm.tolist() == [38.0, 38.0, 30.0]
    with pytest.raises(ValueError, match="read-only"):
        only.relay_rate_bps[0] = 1.0


def test_stars_with_other_relays_are_other_stars():
    def star(rate, power):
        return Topology("net", (Subnet("a", False, [5.0], [24.0], Link(rate, power)),)).as_star()

    assert star(1e8, 38.0) == star(1e8, 38.0)
    assert star(1e8, 38.0) != star(2e8, 38.0)
    assert star(1e8, 38.0) != star(1e8, 37.0)
    (relayed,) = star(1e8, 38.0).subnets
    assert relayed != replace(relayed, relay_rate_bps=None, relay_power_dbm=None)


@pytest.mark.parametrize(("rates", "powers", "link"), [
    ([1.0], None, np.inf), (None, [1.0], np.inf), ([1.0, 2.0], [1.0, 2.0], np.inf), ([0.0], [1.0], np.inf),
    ([np.nan], [1.0], np.inf), ([1.0], [np.inf], np.inf), ([1.0], [1.0], 1e8),
])  # fmt: skip
def test_a_subnet_refuses_relays_that_make_no_sense(rates, powers, link):
    with pytest.raises(UserError):
        Subnet("a", False, [1.0], [1.0], Link(link), relay_rate_bps=rates, relay_power_dbm=powers)


def test_importing_the_room_loads_no_slow_library():
    code = "import sys, h2fdp.topology; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"networkx", "matplotlib", "torch", "sklearn", "scipy", "rich", "pandas"} & set(loaded)


@pytest.mark.parametrize(
    ("subnets", "name"),
    [
        ([("a", ("cam", "cam"), 2)], "cam"),
        ([("a", ("cam",), 1), ("b", ("cam",), 1)], "cam"),
        ([("a", None, 2), ("b", ("a/2",), 1)], "a/2"),
        ([("a", None, 2), ("a/1", None, 1)], "a/1"),
        ([("a", ("b",), 1), ("b", None, 1)], "b"),
        ([("a", None, 1), ("a", None, 1)], "a"),
    ],
)
def test_no_two_nodes_share_a_name_since_they_would_share_their_noise(subnets, name):
    with pytest.raises(UserError, match=f'two nodes have the name "{name}"'):
        Topology(
            "own", tuple(Subnet(edge, False, [5.0] * size, [24.0] * size, names=names) for edge, names, size in subnets)
        )


def test_names_beyond_the_default_ones_are_free():
    Topology("own", (Subnet("a", False, [5.0] * 2, [24.0] * 2), Subnet("b", False, [5.0], [24.0], names=("a/3",))))
