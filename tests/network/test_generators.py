"""Networks made to order."""

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.network import GENERATORS, Topology


@pytest.mark.parametrize("kind", GENERATORS)
def test_equal_seeds_give_equal_networks(kind):
    assert GENERATORS[kind](seed=3) == GENERATORS[kind](seed=3)
    assert GENERATORS[kind](seed=3) != GENERATORS[kind](seed=4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("edges", "devices"), [(1, 1), (1, 50), (2, 1), (30, 1), (30, 2), (7, 40)])
def test_no_edge_server_of_a_geometric_network_is_without_devices(edges, devices, seed):
    network = Topology.geometric(edges=edges, devices=devices, seed=seed)
    assert network.devices == edges * devices
    assert network.sizes.min() >= 1


def test_distances_of_a_geometric_network_are_those_of_a_plane():
    network = Topology.geometric(edges=25, devices=400, side_m=1000.0)
    distances = np.concatenate([subnet.column("distance_m") for subnet in network.subnets])
    assert distances.min() >= 1.0
    # for a Poisson field of density 25 per km2 the mean distance to the nearest is 1/(2 sqrt(density)) = 100 m; the
    # square's border and one draw of 25 servers leave some 15 % around it
    assert 80 < distances.mean() < 130
    assert len(set(network.sizes.tolist())) > 5


def test_raising_trust_moves_no_device():
    low, high = Topology.geometric(trust=0.2), Topology.geometric(trust=0.9)
    pairs = list(zip(low.subnets, high.subnets, strict=True))
    assert all(np.array_equal(one.column("distance_m"), other.column("distance_m")) for one, other in pairs)
    assert all(one.trusted <= other.trusted for one, other in pairs)


@pytest.mark.parametrize("arguments", [
    {"edges": 0}, {"edges": 2.5}, {"devices": -1}, {"trust": 1.2}, {"trust": float("nan")}, {"seed": -1},
    {"name": "\n"}, {"edges": 10**6}, {"edges": 10**5, "devices": 10**4},
])  # fmt: skip
def test_arguments_out_of_range_are_a_users_mistake(arguments):
    for generate in (Topology.regular, Topology.geometric):
        with pytest.raises(UserError):
            generate(**arguments)
