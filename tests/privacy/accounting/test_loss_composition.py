"""Adding privacy losses up, and reading epsilon off: against direct convolution, dp-accounting, and by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from h2fdp.privacy.accounting.loss_composition import LARGEST_TILT, SPILL, best_tilt, chernoff_bound, epsilon_of
from h2fdp.privacy.accounting.loss_distribution import LossDistribution, loss_distributions, reach_of
from h2fdp.privacy.accounting.mixtures import PLAIN_GAUSSIAN
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon

INTERVAL = 0.05
DELTAS = [1e-30, 1e-9, 1e-5, 1e-2, 0.3]
EDGE = 1e-9  # beside a single loss, 1 - exp(epsilon - loss) has no more digits


@st.composite
def distributions(draw, infinite=(0.0, 3e-10, 2e-3)):
    weights = np.array(draw(st.lists(st.floats(0, 1), min_size=1, max_size=30))) + 1e-3
    infinite = draw(st.sampled_from(infinite))  # never delta itself, where rounding decides
    return LossDistribution(draw(st.integers(-60, 60)), weights / weights.sum() * (1 - infinite), infinite)


def directly(parts):
    """The sum's lowest position, masses and infinite mass: sums of positive numbers keep their digits everywhere."""
    lowest, masses, finite = 0, np.ones(1), Fraction(1)
    for losses, count in parts:
        for _ in range(count):
            lowest, masses = lowest + losses.lowest, np.convolve(masses, losses.masses)
            finite *= 1 - Fraction(losses.infinite)
    return lowest, masses, float(1 - finite)


def delta_at(epsilon, lowest, masses, infinite):
    losses = (lowest + np.arange(masses.size)) * INTERVAL
    return infinite + float(masses @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))


def slack(parts, delta, epsilon):
    """The part of delta by which a bound may be off: what is cut or rounded off the tilted sum, untilted at epsilon.

    Where it is large epsilon lies far below the bulk, and the bound need not be near. As an error of epsilon it has no
    limit but the grid's interval: where losses above epsilon have hardly more than delta, epsilon falls fast in delta.
    """
    tilt = best_tilt(parts, INTERVAL, delta)
    above = chernoff_bound(parts, INTERVAL, delta, tilt) - epsilon + INTERVAL
    return 3 * SPILL * math.exp(min(tilt * above, 50.0))


@given(distributions(), st.sampled_from([1e-9, 1e-5, 1e-2, 0.3]))
@example(LossDistribution(0, np.array([0.2998, 0.4, 0.0001, 0.0001, 0.3]), 0.0), 0.3)
@example(LossDistribution(9, np.array([0.6998, 0.0002, 0.3 + 1e-12]), 0.0), 0.3)
def test_epsilon_is_that_of_dp_accounting(losses, delta):
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    theirs = DensePLDPmf(INTERVAL, losses.lowest, losses.masses, losses.infinite, pessimistic_estimate=True)
    found, expected = epsilon_of([(losses, 1)], INTERVAL, delta), theirs.get_epsilon_for_delta(delta)
    assert found == expected or found >= expected - EDGE
    lost = slack([(losses, 1)], delta, expected)
    if lost < 0.5 and losses.infinite <= delta * (1 - lost):
        assert found == expected or found <= theirs.get_epsilon_for_delta(delta * (1 - lost)) + 1e-6


@given(st.lists(st.tuples(distributions(), st.integers(1, 12)), min_size=1, max_size=3), st.sampled_from(DELTAS))
@example([(LossDistribution(0, np.ones(1), 0.0), 1), (LossDistribution(-15, np.ones(1), 0.0), 1)], 1e-30)
@example([(LossDistribution(20, np.ones(1), 0.0), 1)], 1e-30)
def test_sums_are_those_of_direct_convolution(parts, delta):
    exact = directly(parts)
    found = epsilon_of(parts, INTERVAL, delta)
    if exact[2] > delta:
        assert found == math.inf
        return
    assert delta_at(found + EDGE, *exact) <= delta
    lost = slack(parts, delta, found)
    if math.isinf(found):
        assert delta < 1e-20  # where rounding of the transform can be more than delta
    elif found > 0 and lost < 0.5:
        assert delta_at(found - 1e-6, *exact) >= delta * (1 - 2 * lost)


@given(
    st.lists(st.tuples(distributions(infinite=(0.0,)), st.integers(1, 12)), min_size=1, max_size=2),
    st.floats(-3, 6),
    st.sampled_from(DELTAS),
)
def test_any_tilt_gives_an_upper_bound(parts, exponent, delta):
    found = epsilon_of(parts, INTERVAL, delta, tilt=2.0**exponent)
    assert found == math.inf or delta_at(found + EDGE, *directly(parts)) <= delta


@given(st.lists(st.tuples(distributions(), st.integers(1, 500)), min_size=1, max_size=3), st.sampled_from(DELTAS))
def test_the_best_tilt_has_nearly_the_smallest_chernoff_bound(parts, delta):
    found = best_tilt(parts, INTERVAL, delta)
    candidates = 2.0 ** np.arange(-16, math.log2(LARGEST_TILT / INTERVAL), 0.1)
    smallest = min(chernoff_bound(parts, INTERVAL, delta, float(tilt)) for tilt in candidates)
    assert chernoff_bound(parts, INTERVAL, delta, found) <= smallest + 2 / found


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-15, 1e-30, 1e-100])
@pytest.mark.parametrize(("noise_multiplier", "count"), [(1.0, 1), (30.0, 1000), (300.0, 100_000)])
def test_gaussians_one_after_another_are_the_closed_form_at_any_delta(noise_multiplier, count, delta):
    exact = exact_gaussian_epsilon(noise_multiplier / math.sqrt(count), delta)
    interval = 0.02 / noise_multiplier
    for losses in loss_distributions(PLAIN_GAUSSIAN, noise_multiplier, interval, reach_of(delta, count)):
        found = epsilon_of([(losses, count)], interval, delta)
        assert exact <= found <= exact * (1 + 3e-4)


def test_two_coins_by_hand():
    coin = LossDistribution(-1, np.array([0.25, 0.0, 0.75]), 0.0)
    epsilon = epsilon_of([(coin, 2)], 1.0, 0.3)
    assert 0.5625 * (1 - math.exp(epsilon - 2)) == pytest.approx(0.3)


@pytest.mark.parametrize("seed", range(60))
def test_an_upper_bound_holds_where_the_largest_losses_together_have_less_than_delta(seed):
    """It was 0 for some of these sums, where the loss below them is right."""
    random = np.random.default_rng(seed)
    masses = random.choice([1.0, 1.0, 500.0], 8)
    parts = [(LossDistribution(6, masses / masses.sum(), 0.0), int(random.integers(8, 13)))]
    assert delta_at(epsilon_of(parts, INTERVAL, 1e-30) + EDGE, *directly(parts)) <= 1e-30


def test_a_loss_that_is_always_infinite_stays_so():
    assert epsilon_of([(LossDistribution(0, np.array([0.0, 0.0]), 1.0), 3)], 1.0, 0.5) == math.inf
    assert epsilon_of([(LossDistribution(0, np.array([0.0, 0.0]), 1 - 1e-9), 3)], 1.0, 0.5) == math.inf


def test_losses_beyond_the_range_of_exp_do_not_overflow():
    far = LossDistribution(1_000_000, np.array([0.5, 0.5]), 0.0)
    assert epsilon_of([(far, 1)], 1.0, 1e-5) == pytest.approx(1_000_001, abs=1e-3)


def test_more_infinite_mass_than_delta_is_no_guarantee():
    assert epsilon_of([(LossDistribution(0, np.array([0.9]), 0.1), 1)], 1.0, 0.05) == math.inf
    assert epsilon_of([(LossDistribution(0, np.array([0.9]), 0.1), 1)], 1.0, 0.1 + 1e-6) == 0.0
