"""Norms without their noise: unbiased squares, and a flag that rarely takes noise for signal."""

import numpy as np
import pytest
from scipy.stats import binom, chi2
from scipy.stats import norm as normal

from h2fdp.schedules.loss_constants import denoised_norm

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
