"""Epsilons near 0 and far above 1: `pld` is never below the truth, and near it where a closed form is known."""

import itertools

import mpmath
import pytest

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.calibration import iteration_budget

PLD = ACCOUNTANTS["pld"]


def exact_delta(distance, epsilon, drawn=1.0):
    """Of a Gaussian that moves so many deviations with this probability, in 80 digits; the larger direction."""
    with mpmath.workdps(80):
        distance, epsilon, drawn = map(mpmath.mpf, (distance, epsilon, drawn))

        def above(loss):  # the place where the loss of a record removed is so large
            inside = (mpmath.e**loss - 1) / drawn + 1
            return mpmath.log(inside) / distance + distance / 2 if inside > 0 else -mpmath.inf

        def beyond(at):  # P and Q of what lies above
            without = mpmath.ncdf(-at)
            return (1 - drawn) * without + drawn * mpmath.ncdf(distance - at), without

        moved, unmoved = beyond(above(epsilon))
        removed = moved - mpmath.e**epsilon * unmoved
        moved, unmoved = (1 - each for each in beyond(above(-epsilon)))
        return max(removed, unmoved - mpmath.e**epsilon * moved)


@pytest.mark.parametrize(
    ("distance", "delta"),
    list(itertools.product((1e-12, 4e-9, 1e-6, 9.9e-6, 1.1e-5, 1e-3, 20, 450, 3e4), (1e-300, 1e-12, 1e-5, 0.1, 0.9))),
)
def test_plain_gaussians_of_extreme_epsilon_have_their_exact_one(distance, delta):
    counts = {ReleaseType(2 / distance, 3, 0.1, "fixed"): 3, ReleaseType(2 / distance, 1, 1.0): 1}
    found = PLD.epsilon(counts, delta)
    assert exact_delta(distance, found) <= delta
    assert found == 0 or exact_delta(distance, found * (1 - 1e-5)) > delta


@pytest.mark.parametrize(
    ("noise", "rate", "delta"), list(itertools.product((0.001, 0.002, 0.005), (0.5, 0.01), (1e-12, 1e-5)))
)
def test_sampled_records_that_are_all_but_published_cost_a_few_per_cent_more_than_they_do(noise, rate, delta):
    found = PLD.epsilon({ReleaseType(noise, 1, rate): 1}, delta)
    assert exact_delta(1 / noise, found, rate) <= delta < exact_delta(1 / noise, found * 0.97, rate)


@pytest.mark.parametrize(
    ("search", "accountant"), [("safe", "pld"), ("safe", "rdp"), ("safe", "classic-rdp"), ("paper", "classic-rdp")]
)
@pytest.mark.parametrize(("noise", "rate"), [(1e9, 0.1), (1e6, 0.0152), (20854, 0.0152), (10, 1e-5)])
def test_of_more_steps_than_a_run_makes_no_account_is_made(search, accountant, noise, rate):
    composed, step = [], ReleaseType(noise, 1, rate)

    class Watched:
        name = accountant

        def epsilon(self, composition, delta):
            composed.append(sum(composition.values()))
            return ACCOUNTANTS[accountant].epsilon(composition, delta)

    assert iteration_budget(search, step, 3.0, 1e-5, Watched(), most=24) == 24
    assert max(composed, default=0) <= 24


@pytest.mark.parametrize("most", [78, 79, 1000])
def test_a_budget_that_ends_earlier_is_found_whatever_the_most(most):
    step, classic = ReleaseType(1.1, 1, 0.015), ACCOUNTANTS["classic-rdp"]
    assert iteration_budget("safe", step, 1.55, 1e-5, classic, most) == 78
