"""The numbers of a card bound every attack: closed forms, dp-accounting's profiles, and the best tests there are."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.statement import card, gaussian_delta

DELTA = 1e-5
RATES = {"tpr_at_0.01": 0.01, "tpr_at_0.001": 0.001, "reconstruction": 0.1}


def card_of(*compositions, delta=DELTA, accountant="pld"):
    classes = [DeviceClass(np.array([number]), each) for number, each in enumerate(compositions)]
    return card({"cloud": classes}, delta, accountant)["cloud"]


def plain(noise, steps=1, **more):
    return ReleaseType(noise, steps, 1.0, "fixed", **more)


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 4.0, 12.0])
def test_of_gaussians_it_is_the_closed_form(mu):
    """Two levels of noise: 3 / z^2 + 5 / (2 z)^2 = mu^2."""
    noise = math.sqrt(3 + 5 / 4) / mu
    found = card_of({plain(noise): 3, plain(2 * noise): 5})
    assert mu * (1 - 1e-6) < found["mu"] < mu * (1.001 if mu < 10 else 1.01)  # as precise as epsilon, which is 123
    for name, rate in RATES.items():
        exact = norm.cdf(norm.ppf(rate) + mu)
        assert exact * (1 - 1e-6) < found[name] < 1.02 * exact


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rate", "count"), [(0.8, 0.01, 1000), (1.0, 0.01, 1), (0.5, 0.05, 60), (3.0, 0.5, 40)]
)
def test_of_sampled_gaussians_it_is_what_dp_accountings_profile_leaves(noise, rate, count):
    """Of its delta, the larger of both directions, at 4,001 epsilons: 0.1 % for its grid, 2 % for ours."""
    found = card_of({ReleaseType(noise, 1, rate): count})
    law = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-3, use_connect_dots=1)
    epsilon = np.linspace(0, max(20, 1.5 * found["epsilon"]), 4001)
    delta = np.asarray(law.self_compose(count).get_delta_for_epsilon(epsilon))
    for name, false in RATES.items():
        few, many = delta + np.exp(epsilon) * false, 1 - np.exp(-epsilon) * (1 - delta - false)
        exact = min(few.min(), many.min())
        assert 0.999 * exact < found[name] < 1.02 * exact, name
    # At every epsilon up to the stated one the Gaussian's delta is at least the account's; that of a smaller mu is not.
    shown = epsilon <= found["epsilon"]
    assert np.all(gaussian_delta(found["mu"], epsilon[shown]) >= delta[shown] * 0.999)
    assert np.any(gaussian_delta(0.98 * found["mu"], epsilon[shown]) < delta[shown])


@pytest.mark.parametrize("replaced", [False, True])
def test_no_test_of_one_sampled_release_is_better_in_either_direction(replaced):
    """The best tests (Neyman and Pearson) are thresholds; their errors by the normal distribution function."""
    noise, rate = 0.6, 0.2
    found = card_of({ReleaseType(noise, 1, rate, replaced=replaced): 1})
    points = np.linspace(-8, 8, 200_001)
    shift = (0.5 if replaced else 1.0) / noise
    moved = (1 - rate) * norm.cdf(points) + rate * norm.cdf(points - shift)
    other = (1 - rate) * norm.cdf(points) + rate * norm.cdf(points + shift) if replaced else norm.cdf(points)
    best = {}
    for name, false in RATES.items():
        above = np.interp(false, (1 - other)[::-1], (1 - moved)[::-1])
        below = np.interp(false, moved, other)  # the roles exchanged: small values speak for the other law
        best[name] = max(above, below)
        assert best[name] * (1 - 1e-4) < found[name] < 1.02 * best[name], name
        assert best[name] <= norm.cdf(norm.ppf(false) + found["mu"]) + DELTA


def test_a_bounded_loss_needs_a_larger_gaussian_than_its_last_epsilon_says():
    """Laplace noise: from some epsilon on its delta is 0, but small epsilons need as large a delta as ever."""
    found = card_of({plain(math.sqrt(2), law="laplace"): 1})
    last = card_of({plain(1 / 0.23): 1})  # about the mu of a Gaussian of the same epsilon at this delta
    assert found["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert found["mu"] > 2 * last["mu"]
    middle = 2 * norm.ppf((1 + (1 - math.exp(-0.5))) / 2)  # its total variation, 1 - exp(-1/2)
    assert found["mu"] == pytest.approx(middle, rel=0.01)
    assert found["reconstruction"] == pytest.approx(0.1 * math.e, rel=0.01)


def test_it_covers_the_device_that_is_worst_by_each_number():
    """Few loud releases and many faint ones: neither account is the larger at every delta."""
    one, other = {ReleaseType(0.4, 1, 0.01): 3}, {ReleaseType(4.0, 1, 0.5): 30}
    both, apart = card_of(one, other), [card_of(one), card_of(other)]
    assert apart[0]["epsilon"] > apart[1]["epsilon"]
    assert apart[0]["reconstruction"] < apart[1]["reconstruction"]
    for name, value in both.items():
        assert value >= max(each[name] for each in apart) * (1 - 5e-3), name


def test_it_is_by_the_accountant_that_is_asked_and_bounds_the_sharper_one():
    composition = {ReleaseType(1.0, 1, 0.02): 200}
    sharp, loose = card_of(composition), card_of(composition, accountant="rdp")
    assert loose["epsilon"] == ACCOUNTANTS["rdp"].epsilon(composition, DELTA)
    assert all(loose[name] >= sharp[name] for name in sharp)


def test_without_noise_all_is_lost_and_without_releases_there_is_no_card():
    lost = card_of({plain(0.0): 1})
    assert lost == {"epsilon": math.inf, "mu": math.inf} | dict.fromkeys(RATES, 1.0)
    assert card({"cloud": [], "peer": []}, DELTA, "pld") == {}


@pytest.mark.parametrize("delta", [1e-12, 1e-2, 0.3])
@pytest.mark.parametrize("noise", [0.01, 1.0, 1e4])
def test_extremes_stay_bounds(noise, delta):
    found, mu = card_of({plain(noise): 1}, delta=delta), 1 / noise
    for name, rate in RATES.items():
        exact = norm.cdf(norm.ppf(rate) + mu)
        assert exact * (1 - 1e-9) <= found[name] <= 1
        assert found["reconstruction"] >= 0.1
    assert found["mu"] >= mu * (1 - 1e-6)
