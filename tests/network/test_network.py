"""The values themselves: subnets, their invariants, and the star."""

from pathlib import Path

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.network import Topology, Wire, read
from tests.networks import placed


def test_arrays_of_a_subnet_cannot_be_changed():
    given = np.ones(3)
    subnet = placed("a", True, given, np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        subnet.column("distance_m")[0] = 5
    given[0] = 7
    assert subnet.column("distance_m")[0] == 1


@pytest.mark.parametrize(("distance", "power", "names"), [
([], [], None),
([-1.0], [1.0], None),
([np.nan], [1.0], None),
])  # fmt: skip
def test_a_subnet_refuses_what_a_file_could_not_say(distance, power, names):
    with pytest.raises(UserError):
        placed("a", True, distance, power, names=names)


def test_the_star_holds_every_device_in_order_under_its_name():
    network = read(Path(__file__).parents[2] / "topologies" / "campus.yaml", 1)
    star = network.as_star()
    (only,) = star.subnets
    assert only.device_names() == [name for subnet in network.subnets for name in subnet.device_names()]
    assert only.column("distance_m").tolist() == [d for subnet in network.subnets for d in subnet.column("distance_m")]
    assert (only.name, only.trusted, only.link.rate_bps) == ("cloud", False, np.inf)
    assert (star.radio, star.name) == (network.radio, network.name)


def test_in_the_star_each_device_keeps_its_way_to_the_cloud():
    network = Topology(
        "net",
        (
            placed("a", True, [5.0, 6.0], [24.0, 20.0], Wire(1e8, 38.0)),
            placed("b", False, [7.0], [10.0], Wire(5e6, 30.0)),
        ),
    )
    relays = network.as_star().subnets[0].relays
    assert (relays.names, relays.sizes) == (("a", "b"), (2, 1))
    assert relays.links == (Wire(1e8, 38.0), Wire(5e6, 30.0))
    assert relays.of_devices(np.array([1.0, 2.0])).tolist() == [1.0, 1.0, 2.0]


def test_a_star_has_the_access_points_of_its_tree():
    network = read(Path(__file__).parents[2] / "topologies" / "campus.yaml", 1)
    for names, sizes in (network.access_points, network.as_star().access_points):
        assert names == tuple(subnet.name for subnet in network.subnets)
        assert sizes.tolist() == network.sizes.tolist()


@pytest.mark.parametrize(
    ("subnets", "name"),
    [
        ([("a", ("cam", "cam"), 2)], "cam"),
        ([("a", None, 2), ("b", ("a/2",), 1)], "a/2"),
        ([("a", None, 2), ("a/1", None, 1)], "a/1"),
        ([("a", ("b",), 1), ("b", None, 1)], "b"),
    ],
)
def test_no_two_nodes_share_a_name_since_they_would_share_their_noise(subnets, name):
    with pytest.raises(UserError, match=f'two nodes have the name "{name}"'):
        Topology(
            "own", tuple(placed(edge, False, [5.0] * size, [24.0] * size, names=names) for edge, names, size in subnets)
        )
