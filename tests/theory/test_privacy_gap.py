"""Part (b) of Theorem 4.3 for whole networks, one subnet at a time, and at the edges of its range."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.control.convergence import gap_weight, privacy_gap
from h2fdp.schedules.problem import PrivacyTerms

TERMS = PrivacyTerms(parameters=7840, sampling_rate=0.03, clip_norm=1.5, epsilon=0.8, delta=1e-5, c2=1.4, v2=1.7)
subnets = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 0.5, 0.1]), st.integers(1, 60)), min_size=1, max_size=8)


def by_hand(tau, k_l, members):
    inside = sum(p * 1.4**2 / s**2 + (1 - p) * 1.7**2 / s for p, s in members)
    before = 4 * tau * (k_l**3 + 1) * 7840 * 0.03**2 * 1.5**2 * math.log(1e5) / (len(members) ** 2 * 0.8**2)
    return before * inside


@given(subnets, st.integers(1, 50), st.integers(0, 10))
def test_it_is_the_papers_part_b(members, tau, k_l):
    trust, sizes = np.array(members).T
    assert privacy_gap(TERMS, tau, k_l, trust, sizes) == pytest.approx(by_hand(tau, k_l, members))


def test_a_grid_of_times_and_sizes_is_every_single_network():
    rng = np.random.default_rng(0)
    taus, k_ls, sizes, trust = (
        np.arange(1, 6),
        np.array([0, 1, 2, 2, 3]),
        rng.integers(1, 9, (7, 3)),
        np.array([0, 1, 0.4]),
    )
    grid = privacy_gap(TERMS, taus[:, None], k_ls[:, None], trust, sizes)
    assert grid.shape == (5, 7)
    for row, (tau, k_l) in enumerate(zip(taus, k_ls, strict=True)):
        for column, of_one in enumerate(sizes):
            members = list(zip(trust, of_one, strict=True))
            assert grid[row, column] == pytest.approx(by_hand(tau, k_l, members))


@given(st.integers(2, 1000))
def test_trust_pays_in_any_subnet_of_more_than_one_device(size):
    assert gap_weight(1.0, size, 1.4, 1.4) < gap_weight(0.5, size, 1.4, 1.4) < gap_weight(0.0, size, 1.4, 1.4)
