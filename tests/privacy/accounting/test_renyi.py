"""Renyi divergences of a release, and their epsilon: closed forms, dp-accounting and quadrature in 25 digits."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy.accounting import (
    ACCOUNTANTS,
    ORDERS,
    ReleaseType,
    epsilon_at_order,
    epsilon_from_rdp,
    mixture_of,
    rdp_of,
)
from h2fdp.privacy.accounting.accountants import quick_epsilon
from h2fdp.privacy.accounting.mixtures import coarse_mixture_of
from h2fdp.privacy.accounting.renyi import classic_epsilon_from_rdp, directed_divergences, renyi_divergence

EXACT = 1e-8  # relative; the account adds 1e-9 on purpose


def at(divergences, order):
    return float(divergences[order == ORDERS][0])


def subsampled_gaussian(order, noise_multiplier, sampling_rate):
    """Mironov, Talwar and Zhang 2019, Sec. 3.3: the exact divergence at an integer order, in 60 digits."""
    with mpmath.workdps(60):
        q, z = mpmath.mpf(sampling_rate), mpmath.mpf(noise_multiplier)
        terms = (
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp((k * k - k) / (2 * z**2))
            for k in range(order + 1)
        )
        return float(mpmath.log(mpmath.fsum(terms)) / (order - 1))


def by_quadrature(mixture, noise_multiplier, order):
    """Both directions, removed and added, by mpmath's adaptive quadrature."""
    with mpmath.workdps(25):
        z = mpmath.mpf(noise_multiplier)
        parts = [(mpmath.mpf(s) / z, mpmath.mpf(p)) for s, p in zip(*mixture, strict=True)]
        total = mpmath.fsum(p for _, p in parts)

        def ratio(u):
            return mpmath.fsum(p / total * mpmath.exp(a * u - a * a / 2) for a, p in parts)

        def log_moment(power):
            reach = int(abs(power) * max(a for a, _ in parts)) + 12
            points = list(range(-reach, reach + 1, 4))
            return mpmath.log(mpmath.quad(lambda u: mpmath.npdf(u) * ratio(u) ** power, points))

        return float(log_moment(order) / (order - 1)), float(log_moment(1 - order) / (order - 1))


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.1, 7.0, 1e4])
@pytest.mark.parametrize("sampling_rate", [1e-6, 0.015, 0.5])
def test_one_step_is_the_sampled_gaussian_of_mironov(noise_multiplier, sampling_rate):
    divergences = rdp_of(ReleaseType(noise_multiplier, 1, sampling_rate))
    for order in (2, 3, 10, 32, 64, 256):
        if order / (2 * noise_multiplier**2) <= 500:
            exact = subsampled_gaussian(order, noise_multiplier, sampling_rate)
            assert exact < at(divergences, order) <= exact * (1 + EXACT), order


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_record_that_is_always_there_is_a_plain_gaussian(sampling):
    rate = 1.0 if sampling == "poisson" else 0.01
    np.testing.assert_allclose(rdp_of(ReleaseType(3.0, 5, rate, sampling)), ORDERS / 18, rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "order"),
    [(ReleaseType(0.8, 3, 0.3), 12), (ReleaseType(0.12, 2, 0.05), 2), (ReleaseType(14.6, 5, 0.0267), 64)],
)
@pytest.mark.parametrize("rule", [mixture_of, coarse_mixture_of])
def test_mixtures_agree_with_quadrature_in_25_digits(release, order, rule):
    exact = by_quadrature(rule(release), release.noise_multiplier, order)
    directed = directed_divergences(rule(release), release.noise_multiplier, np.array([order]))
    np.testing.assert_allclose(np.ravel(directed), exact, rtol=EXACT)
    found = at(renyi_divergence(rule(release), release.noise_multiplier), order)
    assert max(exact) * (1 - 1e-12) < found <= max(exact) * (1 + EXACT)


def test_one_step_agrees_with_dp_accounting():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.3))
    theirs = RdpAccountant(orders=[int(order) for order in ORDERS[:63]])
    theirs.compose(event)
    np.testing.assert_allclose(rdp_of(ReleaseType(1.3, 1, 0.02))[:63], theirs._rdp, rtol=EXACT)


@pytest.mark.parametrize("noise_multiplier", [1e-3, 0.05, 0.5, 1.0, 20.0, 1e4])
@pytest.mark.parametrize("sampling_rate", [1e-6, 0.1, 0.999, 1.0])
@pytest.mark.parametrize("steps", [1, 1000])
def test_it_is_finite_and_below_the_plain_gaussian_at_any_extreme(noise_multiplier, sampling_rate, steps):
    divergences = rdp_of(ReleaseType(noise_multiplier, steps, sampling_rate))
    assert np.isfinite(divergences).all()
    assert (divergences > 0).all()
    assert (divergences <= ORDERS / (2 * noise_multiplier**2) * (1 + 1e-12)).all()
    assert (np.diff(divergences) >= -1e-9 * divergences[1:]).all()


def test_where_it_is_hopeless_the_plain_bound_stands():
    divergences = rdp_of(ReleaseType(0.5, 5, 0.01))
    hopeless = 2 * ORDERS > 500
    np.testing.assert_array_equal(divergences[hopeless], 2.0 * ORDERS[hopeless])
    assert (divergences[~hopeless] < 2.0 * ORDERS[~hopeless]).all()


RELEASES = st.builds(ReleaseType, st.floats(0.3, 100), st.integers(1, 20), st.floats(1e-4, 1))


@given(RELEASES, st.integers(1, 10**6), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_it_is_the_conversion_of_dp_accounting(release, count, delta):
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    rdp = count * rdp_of(release)
    assert float(epsilon_from_rdp(rdp, delta)) == pytest.approx(compute_epsilon(ORDERS, rdp, delta)[0], rel=1e-12)


@given(RELEASES, st.integers(1, 1000))
def test_the_best_fixed_order_is_the_epsilon_and_no_other_is_below(release, count):
    rdp = count * rdp_of(release)
    fixed = [float(epsilon_at_order(rdp, index, 1e-5)) for index in range(ORDERS.size)]
    assert min(fixed) == float(epsilon_from_rdp(rdp, 1e-5))


def test_the_classic_conversion_by_hand():
    rdp = ORDERS / 200.0
    by_hand = min(order / 200 + np.log(1e5) / (order - 1) for order in range(2, 65))
    assert float(classic_epsilon_from_rdp(rdp, 1e-5)) == pytest.approx(by_hand, rel=1e-14)


@given(RELEASES, st.integers(1, 10**6), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_few_orders_bound_all_of_them_and_not_by_much(release, count, delta):
    sharp = ACCOUNTANTS["rdp"].epsilon({release: count}, delta)
    for quick in (quick_epsilon({release: count}, delta), quick_epsilon({release: count}, delta, near=sharp)):
        assert sharp <= quick
        assert quick <= 1.5 * sharp or not 0.1 < sharp < 20  # 1.36 at most in 6,000 random draws
