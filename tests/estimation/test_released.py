"""Smoothness from releases: exact without noise, noise accounted for as the uploads carry it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binom, chi2
from scipy.stats import norm as normal

from experiments.control.progress_signal import STATISTICS, TOGETHER, correlations, signals
from h2fdp.schedules.loss_constants import ReleasedInterval, denoised_norm, released_smoothness

seeds = st.integers(0, 2**32 - 1)


def interval(gradients, model, step_size=0.1, local_steps=4, variance=0.0, weights=None):
    subnets = len(gradients)
    weights = np.full(subnets, 1 / subnets) if weights is None else weights
    variances = np.broadcast_to(np.asarray(variance, float), subnets)
    return ReleasedInterval(gradients * step_size * local_steps, variances, weights, step_size, local_steps, model)


@given(seeds, st.integers(1, 5))
def test_without_noise_it_is_the_secant_of_the_gradients(seed, parameters):
    rng = np.random.default_rng(seed)
    hessian = rng.normal(size=(parameters, parameters))
    hessian = hessian @ hessian.T
    centres, weights = rng.normal(size=(3, parameters)), np.array([0.2, 0.5, 0.3])
    models = rng.normal(size=(2, parameters))
    previous, current = (
        interval((model - centres) @ hessian, model, eta, tau, weights=weights)
        for model, eta, tau in zip(models, (0.3, 0.2), (5, 2), strict=True)
    )
    found = released_smoothness(current, previous)
    moved = models[1] - models[0]
    assert found.clear == pytest.approx(np.linalg.norm(hessian @ moved) / np.linalg.norm(moved), rel=1e-6)
    assert found.clear <= np.linalg.eigvalsh(hessian)[-1] * (1 + 1e-6)


def test_the_noise_of_both_intervals_is_subtracted_from_the_change_of_gradients():
    weights = np.array([0.25, 0.75])
    previous = interval(np.zeros((2, 4)), np.zeros(4), 0.5, 2, variance=[0.1, 0.2], weights=weights)
    current = interval(np.full((2, 4), 10.0), np.ones(4), 0.2, 10, variance=[0.3, 0.4], weights=weights)
    # ||change||^2 = 400; noise a coordinate (.25^2 .1 + .75^2 .2) / 1^2 + (.25^2 .3 + .75^2 .4) / 2^2; distance 2.
    noise = (0.0625 * 0.1 + 0.5625 * 0.2) + (0.0625 * 0.3 + 0.5625 * 0.4) / 4
    assert released_smoothness(current, previous).norm == pytest.approx(np.sqrt(400 - 4 * noise) / 2)


def test_the_noise_that_moved_the_model_biases_the_squared_secant_upwards_by_the_trace():
    # One subnet, H = diag(1, .., 1, 9), w(t_1) = w(t_0) - eta tau g^0 with g^0 noisy: E of the squared change of
    # gradients less both noises is ||H (w(t_1) - w(t_0))||^2 + 2 eta tau v tr(H). Two-sided, one error in 10^6.
    rng, curvatures, start = np.random.default_rng(2), np.ones(30), np.ones(30)
    step, tau, variance, excesses = 0.1, 2, 0.5, []
    curvatures[-1] = 9.0
    for _ in range(4000):
        noisy = [curvatures * start + np.sqrt(variance) * rng.normal(size=30)]
        model = start - step * tau * noisy[0]
        noisy.append(curvatures * model + np.sqrt(variance) * rng.normal(size=30))
        of_upload = variance * (step * tau) ** 2
        previous, current = (
            interval(g[None], w, step, tau, of_upload) for g, w in zip(noisy, (start, model), strict=True)
        )
        moved = model - start
        secant = released_smoothness(current, previous).norm
        excesses.append((secant * np.linalg.norm(moved)) ** 2 - np.sum((curvatures * moved) ** 2))
    expected = 2 * step * tau * variance * curvatures.sum()
    error = normal.isf(5e-7) * np.std(excesses) / np.sqrt(4000)
    assert 0 < expected - error < np.mean(excesses) < expected + error


DRAWS = 4000
ERROR_RATE = 1e-6


def squared_norms(variance_told, rng):
    """||d||^2 = 400 in 60 coordinates under a noise of variance 3: far enough from 0 for the floor not to matter."""
    signal = np.full(60, np.sqrt(400 / 60))
    noise = np.sqrt(3.0) * rng.normal(size=(DRAWS, 60))
    return np.array([denoised_norm(signal + n, variance_told).norm ** 2 for n in noise])


def looks_unbiased(squares):
    """A two-sided test with the stated error rate: the standard error follows from the noise alone."""
    standard_error = np.sqrt((2 * 60 * 3.0**2 + 4 * 3.0 * 400) / DRAWS)
    return abs(squares.mean() - 400) < normal.isf(ERROR_RATE / 2) * standard_error


def test_the_squared_norm_is_unbiased_at_an_error_rate_of_one_in_a_million():
    assert looks_unbiased(squared_norms(3.0, np.random.default_rng(1)))


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_two_thirds_and_one_and_a_half_of_the_variance_are_told_apart(wrong):
    assert not looks_unbiased(squared_norms(3.0 * wrong, np.random.default_rng(1)))


def passing_rate(parameters):
    """Exact chance of noise alone to pass: excess e > 3 sqrt(2 M v^2 + 4 v e), with v = 1 the larger root below."""
    return chi2.sf(parameters + 18 + np.sqrt(324 + 18 * parameters), parameters)


def test_noise_alone_passes_less_often_than_three_standard_deviations_of_a_normal_at_any_size():
    assert max(passing_rate(m) for m in np.unique(np.geomspace(1, 1e8, 400).astype(int))) < 0.00135


@pytest.mark.parametrize("parameters", [2000, 7840])
def test_noise_alone_passes_at_the_exact_rate(parameters):
    rng = np.random.default_rng(3)
    passed = sum(not denoised_norm(0.5 * rng.normal(size=parameters), 0.25).swamped for _ in range(DRAWS))
    lowest, highest = binom.interval(1 - ERROR_RATE, DRAWS, passing_rate(parameters))
    assert lowest <= passed <= highest


ERROR = 1e-6
SIZE, COUNT = 500, 4000
VARIANCES = np.exp(np.random.default_rng(1).normal(size=COUNT))


def noise(seed):
    return np.random.default_rng(seed).normal(size=(COUNT, SIZE)) * np.sqrt(VARIANCES)[:, None]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("wrong", [2 / 3, 1.0, 3 / 2])
def test_under_noise_alone_a_statistic_has_mean_0_and_spread_1(name, wrong):
    """Of 800 that share no update; 2/3 and 3/2 of the deviation are noticed, by the mean or by the spread."""
    found = signals(noise(2), wrong**2 * VARIANCES)[name][TOGETHER - 1 :: TOGETHER]
    within = abs(found.mean()) * np.sqrt(len(found)) < stats.norm.isf(ERROR / 2)
    spread = np.std(found)
    alike = abs(spread - 1) < 5.5 / np.sqrt(2 * len(found)) * 1.3  # 1.3: their tails are those of a chi-square
    assert (within and alike) == (wrong == 1.0)


@pytest.mark.parametrize("name", STATISTICS)
def test_noise_alone_is_rarely_a_signal_and_progress_is_one(name):
    """0.00135 of normal numbers are above 3; chi-squares of 500 a little more. Progress of half the noise's length."""
    found = signals(noise(3), VARIANCES)[name][TOGETHER - 1 :: TOGETHER]
    assert (found > 3).sum() <= stats.binom.isf(ERROR, len(found), 0.004)
    direction = np.random.default_rng(4).normal(size=SIZE) / 2
    moved = signals(noise(3) + direction * np.sqrt(VARIANCES)[:, None], VARIANCES)[name]
    assert np.nanmedian(moved) == pytest.approx(
        {"alone": 0.25 * SIZE / np.sqrt(2 * SIZE), "neighbours": 0.25 * np.sqrt(SIZE)}.get(name, np.nanmedian(moved)),
        rel=0.1,
    )
    assert (moved[TOGETHER:] > 3).mean() > 0.5


def test_the_correlation_is_with_the_fall_over_the_same_intervals():
    loss = np.array([9.0, 8.0, 6.0, 5.5, 5.4, 5.0, 3.0, 2.9, 2.8])
    rows = pd.DataFrame({"seed": 1, "loss": loss})
    for name, width in (("alone", 1), ("neighbours", 2), ("together", TOGETHER)):
        fall = pd.Series(loss).shift(width) - loss
        assert correlations(rows.assign(**{name: fall**3}), name) == pytest.approx(1.0)
        assert correlations(rows.assign(**{name: -fall}), name) == pytest.approx(-1.0)
