"""Networks made to order."""

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.network import GENERATORS, Topology


@pytest.mark.parametrize("kind", GENERATORS)
def test_equal_seeds_give_equal_networks(kind):
    assert GENERATORS[kind](seed=3) == GENERATORS[kind](seed=3)
    assert GENERATORS[kind](seed=3) != GENERATORS[kind](seed=4)


def test_raising_trust_moves_no_device():
    low, high = Topology.regular(trust=0.2), Topology.regular(trust=0.9)
    pairs = list(zip(low.subnets, high.subnets, strict=True))
    assert all(np.array_equal(one.column("distance_m"), other.column("distance_m")) for one, other in pairs)
    assert all(one.trusted <= other.trusted for one, other in pairs)


@pytest.mark.parametrize("arguments", [
    {"edges": 0}, {"edges": 2.5}, {"devices": -1}, {"trust": 1.2}, {"trust": float("nan")}, {"seed": -1},
    {"name": "\n"}, {"edges": 10**6}, {"edges": 10**5, "devices": 10**4},
])  # fmt: skip
def test_arguments_out_of_range_are_a_users_mistake(arguments):
    with pytest.raises(UserError):
        Topology.regular(**arguments)
