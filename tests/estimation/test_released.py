"""Constants from releases: exact without noise, noise accounted for as the uploads carry it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm as normal

from h2fdp.schedules.loss_constants import ReleasedInterval, released_constants

seeds = st.integers(0, 2**32 - 1)


def interval(gradients, model, step_size=0.1, local_steps=4, variance=0.0, weights=None):
    subnets = len(gradients)
    weights = np.full(subnets, 1 / subnets) if weights is None else weights
    variances = np.broadcast_to(np.asarray(variance, float), subnets)
    return ReleasedInterval(gradients * step_size * local_steps, variances, weights, step_size, local_steps, model)


@given(seeds, st.integers(1, 5))
def test_without_noise_they_are_the_secant_and_the_dispersion_of_the_gradients(seed, parameters):
    rng = np.random.default_rng(seed)
    hessian = rng.normal(size=(parameters, parameters))
    hessian = hessian @ hessian.T
    centres, weights = rng.normal(size=(3, parameters)), np.array([0.2, 0.5, 0.3])
    models = rng.normal(size=(2, parameters))
    previous, current = (
        interval((model - centres) @ hessian, model, eta, tau, weights=weights)
        for model, eta, tau in zip(models, (0.3, 0.2), (5, 2), strict=True)
    )
    found = released_constants(current, previous)
    moved = models[1] - models[0]
    assert found.smoothness.clear == pytest.approx(np.linalg.norm(hessian @ moved) / np.linalg.norm(moved), rel=1e-6)
    assert found.smoothness.clear <= np.linalg.eigvalsh(hessian)[-1] * (1 + 1e-6)
    apart = (weights @ centres - centres) @ hessian
    assert found.network_dispersion.clear == pytest.approx(np.linalg.norm(apart, axis=1).max(), rel=1e-6)


def test_the_noise_of_both_intervals_is_subtracted_from_the_change_of_gradients():
    weights = np.array([0.25, 0.75])
    previous = interval(np.zeros((2, 4)), np.zeros(4), 0.5, 2, variance=[0.1, 0.2], weights=weights)
    current = interval(np.full((2, 4), 10.0), np.ones(4), 0.2, 10, variance=[0.3, 0.4], weights=weights)
    # ||change||^2 = 400; noise a coordinate (.25^2 .1 + .75^2 .2) / 1^2 + (.25^2 .3 + .75^2 .4) / 2^2; distance 2.
    noise = (0.0625 * 0.1 + 0.5625 * 0.2) + (0.0625 * 0.3 + 0.5625 * 0.4) / 4
    assert released_constants(current, previous).smoothness.norm == pytest.approx(np.sqrt(400 - 4 * noise) / 2)


def test_the_noise_of_a_subnet_is_in_the_mean_too():
    # Variance of the coordinates of (1 - w w') g by matrices, for the subnet that is furthest away.
    weights, variances = np.array([0.5, 0.2, 0.3]), np.array([1.0, 2.0, 3.0])
    gradients = np.zeros((3, 4))
    gradients[1] = 100.0
    found = released_constants(interval(gradients, np.zeros(4), 0.5, 4, variances, weights), None).network_dispersion
    away = np.eye(3) - np.ones((3, 1)) * weights
    of_differences = np.diag(away @ np.diag(variances / 4) @ away.T)
    squared = np.sum((away @ gradients)[1] ** 2)
    assert squared - found.norm**2 == pytest.approx(4 * of_differences[1])


def test_a_clear_subnet_is_preferred_to_a_larger_one_that_noise_swamps():
    rng = np.random.default_rng(0)
    gradients = np.vstack([3 + np.zeros((1, 400)), np.zeros((3, 400))]) + 0.01 * rng.normal(size=(4, 400))
    gradients[3] += 1000 * rng.normal(size=400)
    weights = np.array([0.3, 0.4, 0.3, 0.0])
    found = released_constants(interval(gradients, np.zeros(400), 1.0, 1, [1e-4, 1e-4, 1e-4, 1e6], weights), None)
    assert found.network_dispersion.clear == pytest.approx(0.7 * 3 * 20, rel=0.01)


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
        secant = released_constants(current, previous).smoothness.norm
        excesses.append((secant * np.linalg.norm(moved)) ** 2 - np.sum((curvatures * moved) ** 2))
    expected = 2 * step * tau * variance * curvatures.sum()
    error = normal.isf(5e-7) * np.std(excesses) / np.sqrt(4000)
    assert 0 < expected - error < np.mean(excesses) < expected + error
