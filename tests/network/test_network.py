"""The values themselves: subnets, their invariants, and the star."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.network import Link, Relays, Topology
from tests.networks import placed


def test_arrays_of_a_subnet_cannot_be_changed():
    given = np.ones(3)
    subnet = placed("a", True, given, np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        subnet.column("distance_m")[0] = 5
    given[0] = 7
    assert subnet.column("distance_m")[0] == 1


@pytest.mark.parametrize(("distance", "power", "names"), [
    ([], [], None), ([1.0], [1.0, 2.0], None), ([1.0], [1.0], ("a", "b")), ([-1.0], [1.0], None), ([0.0], [1.0], None),
    ([np.nan], [1.0], None), ([1.0], [np.inf], None),
])  # fmt: skip
def test_a_subnet_refuses_what_a_file_could_not_say(distance, power, names):
    with pytest.raises(UserError):
        placed("a", True, distance, power, names=names)


def test_a_network_refuses_two_edge_servers_of_one_name():
    subnet = placed("a", True, [1.0], [1.0])
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
    assert only.column("distance_m").tolist() == [d for subnet in network.subnets for d in subnet.column("distance_m")]
    assert (only.name, only.trusted, only.link.rate_bps) == ("cloud", False, np.inf)
    assert (star.radio, star.compute, star.name) == (network.radio, network.compute, network.name)


def test_the_star_of_a_star_is_itself():
    star = Topology.regular().as_star()
    assert star.as_star() == star


def test_in_the_star_each_device_keeps_its_way_to_the_cloud():
    network = Topology(
        "net",
        (
            placed("a", True, [5.0, 6.0], [24.0, 20.0], Link(1e8, 38.0)),
            placed("b", False, [7.0], [10.0], Link(5e6, 30.0)),
        ),
    )
    relays = network.as_star().subnets[0].relays
    assert relays == Relays(("a", "b"), [2, 1], [1e8, 5e6], [38.0, 30.0])
    assert relays.of_devices(relays.rate_bps).tolist() == [1e8, 1e8, 5e6]
    for array in (relays.sizes, relays.rate_bps, relays.power_dbm):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_star_has_the_access_points_of_its_tree():
    network = Topology.geometric(edges=5, devices=4)
    for names, sizes in (network.access_points, network.as_star().access_points):
        assert names == tuple(subnet.name for subnet in network.subnets)
        assert sizes.tolist() == network.sizes.tolist()


@pytest.mark.slow
def test_the_relays_of_a_million_devices_stay_few():
    relays = Topology.regular(edges=1000, devices=1000).as_star().subnets[0].relays
    assert sum(array.nbytes for array in (relays.sizes, relays.rate_bps, relays.power_dbm)) == 24_000


def test_stars_with_other_relays_are_other_stars():
    def star(rate=1e8, power=38.0, second="b", names=(("x",), ("y", "z"))):
        subnets = [
            placed(edge, False, [5.0] * len(own), [24.0] * len(own), Link(rate, power), names=own)
            for edge, own in zip(("a", second), names, strict=True)
        ]
        return Topology("net", tuple(subnets)).as_star()

    given = star()
    assert given == star()
    for other in (star(rate=2e8), star(power=37.0), star(second="c"), star(names=(("x", "y"), ("z",)))):
        assert given != other
    assert given.subnets[0] != replace(given.subnets[0], relays=None)


@pytest.mark.parametrize(("names", "sizes", "rates", "powers"), [
    ((), [], [], []), (("a", "a"), [1, 1], [1.0, 1.0], [1.0, 1.0]), (("a",), [0], [1.0], [1.0]),
    (("a",), [1, 1], [1.0], [1.0]), (("a",), [1], [1.0, 2.0], [1.0]), (("a",), [1], [1.0], [1.0, 2.0]),
    (("a",), [1], [0.0], [1.0]), (("a",), [1], [np.nan], [1.0]), (("a",), [1], [1.0], [np.inf]),
])  # fmt: skip
def test_relays_that_make_no_sense(names, sizes, rates, powers):
    with pytest.raises(UserError, match="relays"):
        Relays(names, sizes, rates, powers)


@pytest.mark.parametrize(("size", "rate"), [(2, np.inf), (1, 1e8)])
def test_a_subnet_refuses_relays_of_other_devices_or_before_a_link_of_its_own(size, rate):
    with pytest.raises(UserError, match="cloud"):
        placed("cloud", False, [1.0] * size, [1.0] * size, Link(rate), relays=Relays(("a",), [1], [1e8], [38.0]))


def test_relays_are_in_stars_alone():
    relayed = placed("s", False, [1.0], [1.0], Link(np.inf), relays=Relays(("a",), [1], [1e8], [38.0]))
    with pytest.raises(UserError, match="star"):
        Topology("net", (relayed, placed("b", False, [1.0], [1.0])))


@pytest.mark.process
def test_importing_the_room_loads_no_slow_library():
    code = "import sys, h2fdp.network; print(*sys.modules)"
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
            "own", tuple(placed(edge, False, [5.0] * size, [24.0] * size, names=names) for edge, names, size in subnets)
        )


def test_names_beyond_the_default_ones_are_free():
    Topology("own", (placed("a", False, [5.0] * 2, [24.0] * 2), placed("b", False, [5.0], [24.0], names=("a/3",))))
