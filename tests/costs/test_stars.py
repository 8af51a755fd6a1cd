"""A star beside the tree that it was made of: the same channels and neighbours, the same wires."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.network import Link, Topology
from tests.costs.plans import PLAIN, THREE, cost, everybody, plans, trees
from tests.networks import placed


def test_in_a_star_the_clock_waits_for_the_slowest_active_access_point_and_relay():
    """Three devices of four seconds: two of them take turns at one access point, beside the third at the other."""
    slow, fast = placed("a", True, [1.0], [THREE], Link(0.5)), placed("b", True, [1.0] * 2, [THREE] * 2, Link(4.0))
    star = Topology("net", (slow, fast), PLAIN).as_star()
    assert everybody(star, (1,)).clock_s == pytest.approx((8 + 4) + 2 * 16)
    assert cost(star, [0], [[0, 1]], [(1,)]).clock_s == pytest.approx((4 + 4) + 2 * 16)
    assert cost(star, [0], [[1]], [(1,)]).clock_s == pytest.approx((4 + 4) + 2 * 2)
    shared = replace(star, radio=replace(PLAIN, access="ofdma"))
    assert everybody(shared, (1,)).clock_s == pytest.approx(8 / (0.5 * log2(7)) + 4 + 2 * 16, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=60)
@given(plan=plans(trees()), steps=st.integers(1, 20), seed=st.integers(0, 2**32), bits=st.integers(1, 10**8))
def test_under_one_aggregation_a_star_differs_from_its_tree_by_the_wires_energy_alone(plan, steps, seed, bits):
    tree, subnets, rows, _ = plan
    star, starts = tree.as_star(), np.cumsum(tree.sizes) - tree.sizes
    together = [int(starts[c]) + j for c, active in zip(subnets, rows, strict=True) for j in active]
    of_tree = cost(tree, subnets, rows, [[steps]] * len(subnets), bits, seed)
    of_star = cost(star, [0], [together], [[steps]], bits, seed)
    assert of_star.clock_s == of_tree.clock_s
    for name in ("device_energy_j", "device_delay_s"):
        assert getattr(of_star, name).tolist() == getattr(of_tree, name).tolist(), name
    assert of_star.delay_s == pytest.approx(of_tree.delay_s, rel=1e-12)
    active = np.zeros(tree.edges)
    active[list(subnets)] = [len(of_subnet) for of_subnet in rows]
    assert of_star.wired_energy_j == pytest.approx([of_tree.wired_energy_j @ active], rel=1e-12, abs=0)
    without_wires = [found.energy_j - found.wired_energy_j.sum() for found in (of_tree, of_star)]
    assert without_wires[1] == pytest.approx(without_wires[0], rel=1e-9, abs=1e-12 * of_star.energy_j)
