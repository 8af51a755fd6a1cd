"""Part (b) of Theorem 4.3 for whole networks, one subnet at a time, and at the edges of its range."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.convergence import gap_weight, privacy_gap
from h2fdp.errors import UserError
from h2fdp.schedules.privacy_gap import PrivacyTerms, gap_scale

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


@given(subnets, st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10)), min_size=1, max_size=5))
def test_it_separates_into_a_scale_of_the_times_and_a_weight_for_each_subnet(members, times):
    (trust, sizes), (taus, k_ls) = np.array(members).T, np.array(times).T
    separate = gap_scale(TERMS, taus, k_ls, len(members)) * gap_weight(trust, sizes, TERMS.c2, TERMS.v2).sum()
    np.testing.assert_allclose(privacy_gap(TERMS, taus, k_ls, trust, sizes), separate)


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


@given(subnets, st.integers(1, 50), st.integers(0, 10))
def test_more_steps_or_aggregations_widen_it_and_more_devices_narrow_it(members, tau, k_l):
    trust, sizes = np.array(members).T
    now = privacy_gap(TERMS, tau, k_l, trust, sizes)
    assert privacy_gap(TERMS, tau + 1, k_l, trust, sizes) > now
    assert privacy_gap(TERMS, tau, k_l + 1, trust, sizes) > now
    assert privacy_gap(TERMS, tau, k_l, trust, sizes + 1) < now


@given(st.integers(2, 1000))
def test_trust_pays_in_any_subnet_of_more_than_one_device(size):
    assert gap_weight(1.0, size, 1.4, 1.4) < gap_weight(0.5, size, 1.4, 1.4) < gap_weight(0.0, size, 1.4, 1.4)


@pytest.mark.parametrize("trust", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_subnet_without_devices_makes_it_infinite_and_nobody_is_warned(trust, epsilon):
    terms = PrivacyTerms(10, 0.1, 1.0, epsilon, 1e-5)
    gaps = privacy_gap(terms, np.array([1, 2]), 0, np.array([trust, 1.0]), np.array([0, 5]))
    assert gaps.tolist() == [math.inf, math.inf]


def test_without_noise_there_is_no_gap():
    assert privacy_gap(PrivacyTerms(10, 0.1, 1.0, math.inf, 1e-5), 5, 2, np.array([0.0]), np.array([3])) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: privacy_gap(TERMS, np.array([3, 0]), 0, np.zeros(2), np.ones(2)),
            "local_steps: expected at least one local step, found 0",
        ),
        (lambda: gap_scale(TERMS, 1, -1, 2), "local_aggregations: expected a number of at least 0, found -1"),
        (lambda: gap_scale(TERMS, 1, 0, 0), "active_subnets: expected at least one subnet, found 0"),
        (lambda: gap_weight(-0.5, 1, 1.0, 1.0), "trust: expected a probability between 0 and 1, found -0.5"),
        (
            lambda: gap_weight(0.5, np.array([2, -1]), 1.0, 1.0),
            "sizes: expected a number of devices of at least 0, found -1",
        ),
    ],
)
def test_values_out_of_range_are_named(call, message):
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == message


def test_ten_million_points_take_less_than_a_second_of_one_core():
    sizes = np.random.default_rng(0).integers(1, 50, (10, 5000, 20))
    taus = np.arange(1, 11)[:, None]
    fastest = math.inf
    for _ in range(3):
        start = time.process_time()
        privacy_gap(TERMS, taus, taus - 1, np.ones(20), sizes)
        fastest = min(fastest, time.process_time() - start)
    assert sizes.size / fastest > 1e7
