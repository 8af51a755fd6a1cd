"""Adding privacy losses up, and reading epsilon off, against dp-accounting and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy.accounting.loss_composition import TRUNCATION, chernoff_bounds, epsilon_of, repeated, together
from h2fdp.privacy.accounting.loss_distribution import LossDistribution

INTERVAL = 0.05


@st.composite
def distributions(draw):
    weights = np.array(draw(st.lists(st.floats(0, 1), min_size=1, max_size=30))) + 1e-3
    infinite = draw(st.sampled_from([0.0, 3e-10, 2e-3]))  # never delta itself, where rounding decides
    return LossDistribution(draw(st.integers(-60, 60)), weights / weights.sum() * (1 - infinite), infinite)


@given(distributions(), st.sampled_from([1e-9, 1e-5, 1e-2, 0.3]))
def test_epsilon_is_that_of_dp_accounting(losses, delta):
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    theirs = DensePLDPmf(INTERVAL, losses.lowest, losses.masses, losses.infinite, pessimistic_estimate=True)
    assert epsilon_of(losses, INTERVAL, delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), abs=1e-7)


@given(distributions(), st.integers(1, 12))
def test_repeating_is_adding_one_after_the_other(losses, count):
    by_hand = losses
    for _ in range(count - 1):
        by_hand = together(by_hand, losses)
    found = repeated(losses, count)
    assert found.infinite == pytest.approx(by_hand.infinite, abs=2e-15)
    padded = np.zeros(by_hand.masses.size + found.masses.size)
    offset = found.lowest - by_hand.lowest
    padded[offset : offset + found.masses.size] = found.masses
    np.testing.assert_allclose(padded[: by_hand.masses.size], by_hand.masses, atol=1e-12)


@pytest.mark.slow
@given(distributions(), st.integers(1, 5000))
def test_what_is_cut_off_is_what_dp_accounting_cuts_off(losses, count):
    from dp_accounting.pld.common import compute_self_convolve_bounds

    theirs = compute_self_convolve_bounds(losses.masses, count, TRUNCATION)
    assert chernoff_bounds(losses.masses, count) == pytest.approx(theirs, abs=1)  # rounded to whole places


def test_a_loss_that_is_always_infinite_stays_so():
    assert repeated(LossDistribution(0, np.array([0.0, 0.0]), 1 - 1e-9), 3).infinite == pytest.approx(1, abs=1e-8)


def test_two_coins_by_hand():
    coin = LossDistribution(-1, np.array([0.25, 0.0, 0.75]), 0.0)
    both = together(coin, coin)
    assert both.lowest == -2
    np.testing.assert_allclose(both.masses, [0.0625, 0, 0.375, 0, 0.5625], atol=1e-15)
    epsilon = epsilon_of(both, 1.0, 0.3)
    assert 0.5625 * (1 - math.exp(epsilon - 2)) == pytest.approx(0.3)


def test_losses_beyond_the_range_of_exp_do_not_overflow():
    far = LossDistribution(1_000_000, np.array([0.5, 0.5]), 0.0)
    assert epsilon_of(far, 1.0, 1e-5) == pytest.approx(1_000_001, abs=1e-3)


def test_more_infinite_mass_than_delta_is_no_guarantee():
    assert epsilon_of(LossDistribution(0, np.array([0.9]), 0.1), 1.0, 0.05) == math.inf
    assert epsilon_of(LossDistribution(0, np.array([0.9]), 0.1), 1.0, 0.1) == 0.0
