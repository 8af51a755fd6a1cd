"""Multipliers of cost: brute force over participation, budgets that are used up and not exceeded, the least product."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.schedules.device_choice import Turns, cheapest_first
from h2fdp.schedules.multipliers import Forecast, Prices, choices, least_product, within_budget
from h2fdp.schedules.offers import Offers

LIMITS = (3, 1, 4)
PRICES = Prices(1.0, 0.25)


@st.composite
def intervals(draw):
    """Offers for two lengths: costs rise with each device, noise falls with their number; the second costs nothing."""
    found = []
    for tau in (1, 4):
        random = np.random.default_rng([draw(st.integers(0, 2**32 - 1)), tau])  # no two lengths cost the same
        counts = np.arange(1, max(LIMITS) + 1)
        joules = np.cumsum(random.exponential(size=(len(LIMITS), len(counts))), axis=1)
        seconds = np.cumsum(random.exponential(size=joules.shape), axis=1)
        noise = tau * random.exponential(size=(len(LIMITS), 1)) / counts ** random.integers(1, 3)
        found.append(Offers(tau, joules, seconds, np.where(counts <= np.array(LIMITS)[:, None], noise, np.inf)))
    return found


@given(intervals(), st.floats(0, 50))
@settings(max_examples=25)
def test_the_best_choice_is_that_of_brute_force(interval, multiplier):
    def objective(each, participation):
        joules = sum(float(each.joules[row, s - 1]) for row, s in enumerate(participation))
        seconds = sum(float(each.seconds[row, s - 1]) for row, s in enumerate(participation))
        noise = sum(float(each.noise[row, s - 1]) for row, s in enumerate(participation))
        return (noise + multiplier * (PRICES.joule * joules + PRICES.second * seconds)) / each.tau

    every = itertools.product(*(range(1, limit + 1) for limit in LIMITS))
    least = min(objective(each, point) for point in every for each in interval)
    best = choices(interval, PRICES, multiplier)[0]
    assert best.objective == pytest.approx(least, rel=1e-12)
    found = next(each for each in interval if each.tau == best.tau)
    assert best.objective == pytest.approx(objective(found, best.participation.tolist()), rel=1e-12)
    assert Forecast.of([interval]).rates(PRICES, multiplier).joules == pytest.approx(best.joules / best.tau)


@given(st.lists(intervals(), min_size=2, max_size=4), st.floats(0.05, 1.5))
@settings(max_examples=25)
def test_a_budget_is_kept_and_no_smaller_multiplier_keeps_it(found, share):
    forecast = Forecast.of(found)
    loose = forecast.rates(PRICES, 0.0)
    joules, seconds = share * loose.joules, share * loose.seconds
    multiplier = within_budget(forecast, PRICES, joules, seconds)
    rates, dearest = forecast.rates(PRICES, multiplier), forecast.rates(PRICES, 1e30)
    if share >= 1:
        assert rates.noise == pytest.approx(loose.noise), "cost decides between equal noises only"
    elif rates.joules <= joules and rates.seconds <= seconds:
        below = forecast.rates(PRICES, 0.999 * multiplier)
        assert below.joules > joules or below.seconds > seconds
    else:
        assert dearest.joules > joules or dearest.seconds > seconds, "what is possible is found"
        assert (rates.joules, rates.seconds) == pytest.approx((dearest.joules, dearest.seconds)), "the cheapest"


@given(st.lists(intervals(), min_size=1, max_size=3))
@settings(max_examples=10)
def test_no_multiplier_has_a_smaller_product_of_cost_and_noise(found):
    forecast = Forecast.of(found)

    def product(multiplier):
        rates = forecast.rates(PRICES, multiplier)
        return (PRICES.joule * rates.joules + PRICES.second * rates.seconds) * rates.noise

    least = product(least_product(forecast, PRICES))
    assert least <= 1.1 * min(product(each) for each in np.geomspace(1e-3, 1e3, 40))


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
@settings(max_examples=25)
def test_no_device_is_left_far_behind_its_share_of_the_turns(seed, floor):
    """However the channels turn out: at least floor times its equal part, but for the turns that others were due."""
    random, sizes = np.random.default_rng(seed), np.array([5, 3])
    price, turns = random.exponential(size=8), Turns.begun(np.array([5, 3]))
    for _ in range(40):
        order = cheapest_first(sizes, price * random.exponential(size=8) ** 0.2, turns, floor)
        taken = [np.sort(order[:2]), np.sort(order[5:6]) - 5]
        turns = turns.after(sizes, taken)
    least = floor * np.repeat(turns.asked / sizes, sizes)
    assert (turns.taken >= np.floor(least) - 2).all()
    assert turns.taken.sum() == turns.asked.sum() == 40 * 3
