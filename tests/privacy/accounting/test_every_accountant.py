"""One suite that every accountant passes; how near each has to come is stated here and nowhere else."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy.accounting import ACCOUNTANTS, AccountantName, ReleaseType, total_rdp
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon

DELTA = 1e-5


@dataclass(frozen=True)
class Expected:
    """What is asked of one accountant.

    Attributes:
        jitter: relative; how far its numerics may break monotonicity.
        above: largest ratio of its epsilon to the exact one of a pure Gaussian, for epsilons of 0.1 to 20.
        examples: how many each property is tried on.
    """

    jitter: float
    above: float
    examples: int = 10


EXPECTED = {
    "rdp": Expected(jitter=1e-12, above=1.20),
    "classic-rdp": Expected(jitter=1e-12, above=2.1),
    "pld": Expected(jitter=1e-3, above=1.0005),
}


def test_every_accountant_is_under_test():
    assert set(EXPECTED) == set(ACCOUNTANTS) == set(get_args(AccountantName))


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def name(request):
    return request.param


def releases():
    return st.builds(
        ReleaseType,
        noise_multiplier=st.floats(0.8, 30),
        steps=st.integers(1, 50),
        sampling_rate=st.floats(0.001, 0.5),
    ) | st.builds(
        ReleaseType,
        noise_multiplier=st.floats(2, 30),
        steps=st.integers(1, 50),
        sampling_rate=st.floats(0.001, 1),
        sampling=st.just("fixed"),
    )


def compositions():
    return st.dictionaries(releases(), st.integers(1, 50), min_size=1, max_size=2)


def opacus_epsilon(noise_multiplier, sampling_rate, count, error):
    """By the accountant of Gopi, Lee and Wutschitz 2021, from another code base; its bound includes the error."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, sampling_rate, count)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of quadrature and logarithms of 0 at its edges
        return max(0.0, accountant.get_epsilon(DELTA, eps_error=error))


def epsilon(name, composition, delta=DELTA):
    return ACCOUNTANTS[name].epsilon(composition, delta)


def no_less(name, one, other):
    return one >= other * (1 - EXPECTED[name].jitter) - 2e-5


def test_nothing_released_costs_nothing(name):
    assert epsilon(name, {}) == 0
    assert epsilon(name, {ReleaseType(1.0, 1, 0.1): 0}) == 0


def test_what_does_not_depend_on_the_record_costs_nothing(name):
    assert epsilon(name, {ReleaseType(math.inf, 1, 0.1): 10, ReleaseType(1.0, 1, 0.0): 10}) == 0


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_noise_is_infinite(name, sampling):
    bare = ReleaseType(0.0, 1, 0.01, sampling)
    assert epsilon(name, {bare: 1}) == math.inf
    assert epsilon(name, {ReleaseType(5.0, 1, 0.01): 3, bare: 1}) == math.inf


def test_more_releases_never_cost_less(name):
    @settings(max_examples=EXPECTED[name].examples)
    @given(compositions(), st.data())
    def check(composition, data):
        release = data.draw(st.sampled_from(sorted(composition)))
        more = {**composition, release: composition[release] + data.draw(st.integers(1, 50))}
        assert no_less(name, epsilon(name, more), epsilon(name, composition))

    check()


def test_more_noise_never_costs_more(name):
    @settings(max_examples=EXPECTED[name].examples)
    @given(compositions(), st.floats(1.01, 3))
    def check(composition, factor):
        quieter = {
            replace(release, noise_multiplier=release.noise_multiplier * factor): count
            for release, count in composition.items()
        }
        assert no_less(name, epsilon(name, composition), epsilon(name, quieter))

    check()


def test_a_smaller_delta_never_costs_less(name):
    @settings(max_examples=EXPECTED[name].examples)
    @given(compositions())
    def check(composition):
        assert no_less(name, epsilon(name, composition, 1e-7), epsilon(name, composition, 1e-5))

    check()


@pytest.mark.parametrize("delta", [1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize(("noise_multiplier", "count"), [(1.0, 1), (2.0, 10), (10.0, 3), (40.0, 900), (8.0, 400)])
@pytest.mark.parametrize("of", ["fixed batches", "certain draws"])
def test_a_pure_gaussian_agrees_with_the_closed_form(name, noise_multiplier, count, delta, of):
    fixed = of == "fixed batches"
    release = ReleaseType(noise_multiplier, 7, 0.3 if fixed else 1.0, "fixed" if fixed else "poisson")
    exact = exact_gaussian_epsilon(noise_multiplier / math.sqrt(count), delta)
    found = epsilon(name, {release: count}, delta)
    assert exact * (1 - 1e-9) <= found <= exact * EXPECTED[name].above


def test_types_that_reveal_the_same_compose_alike_in_any_order(name):
    small, large = ReleaseType(3.0, 1, 0.02), ReleaseType(9.0, 1, 0.2)
    once = epsilon(name, {small: 40, large: 60})
    assert epsilon(name, {large: 60, small: 40}) == pytest.approx(once, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise_multiplier", "sampling_rate", "count"),
    [  # each pair of a value of one and a value of another
        *((0.8, 0.002, 1), (0.8, 0.05, 1000), (0.8, 0.5, 50)),
        *((1.5, 0.002, 50), (1.5, 0.05, 1), (1.5, 0.5, 1000)),
        *((5.0, 0.002, 1000), (5.0, 0.05, 50), (5.0, 0.5, 1)),
    ],
)
def test_accountants_agree_on_the_subsampled_gaussian(noise_multiplier, sampling_rate, count):
    """Opacus within 1 % of rdp's epsilon above pld; pld <= rdp <= classic-rdp; rdp near pld where losses are bells."""
    composition = {ReleaseType(noise_multiplier, 1, sampling_rate): count}
    by = {name: epsilon(name, composition) for name in EXPECTED}
    theirs = opacus_epsilon(noise_multiplier, sampling_rate, count, max(0.01 * by["rdp"], 1e-3))
    assert by["pld"] * 0.999 <= theirs <= by["pld"] * 1.005 + 0.011 * by["rdp"] + 0.003
    assert by["pld"] <= by["rdp"] * (1 + 5e-4) <= by["classic-rdp"] * (1 + 1e-3)
    if 0.2 < by["pld"] < 3 and count > 1 and noise_multiplier > 1:
        assert by["rdp"] <= by["pld"] * 4 / 3


@pytest.mark.parametrize("noise_multiplier", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("steps", [1, 7])
def test_an_epsilon_beyond_all_use_is_still_a_number_and_pld_is_not_above_rdp(noise_multiplier, steps):
    """Such noise protects nothing; a run that has it ends with its account all the same."""
    composition = {ReleaseType(noise_multiplier, steps, 0.01): 5, ReleaseType(noise_multiplier, 1, 1.0): 1}
    by_loss, by_order = (ACCOUNTANTS[name].epsilon(composition, 1e-5) for name in ("pld", "rdp"))
    assert 1e3 < by_loss <= by_order * (1 + 1e-9)


def test_renyi_divergences_do_not_depend_on_the_order_in_which_releases_are_given():
    """To the bit: a resumed run enters them from its ledger, and sets have another order in another process."""
    items = [(ReleaseType(0.5 + 0.07 * place, 1 + place % 3, 0.02), 1 + place) for place in range(30)]
    shuffled = [items[7 * place % 30] for place in range(30)]
    assert np.array_equal(total_rdp(dict(items)), total_rdp(dict(shuffled)))
