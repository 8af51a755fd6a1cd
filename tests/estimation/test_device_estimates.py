"""Exact estimators on losses whose constants are known: quadratics and a small softmax regression."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from h2fdp.schedules.device_estimates import gradient_dispersion, minibatch_deviation, secant_smoothness

seeds = st.integers(0, 2**32 - 1)


def symmetric(rng, size):
    matrix = rng.normal(size=(size, size))
    return matrix + matrix.T


@given(seeds, st.integers(1, 6))
def test_the_secant_never_exceeds_the_smoothness_of_a_quadratic(seed, size):
    rng = np.random.default_rng(seed)
    hessians = np.stack([symmetric(rng, size) for _ in range(3)])
    points, here = rng.normal(size=(3, size)), rng.normal(size=size)
    at = lambda w: np.einsum("imn,in->im", hessians, np.broadcast_to(w, (3, size)))  # noqa: E731
    true = np.abs(np.linalg.eigvalsh(hessians)).max()
    assert secant_smoothness(at(points), at(here), points, here) <= true * (1 + 1e-9)


@given(seeds)
def test_the_secant_never_exceeds_the_smoothness_of_a_softmax_regression(seed):
    rng = np.random.default_rng(seed)
    inputs, labels = rng.normal(size=(20, 3)), np.eye(4)[rng.integers(0, 4, 20)]

    def gradient(w):
        return (inputs.T @ (softmax(inputs @ w.reshape(3, 4), axis=1) - labels) / 20).ravel()

    def largest_curvature(w):
        chances = softmax(inputs @ w.reshape(3, 4), axis=1)
        inner = np.einsum("nk,kl->nkl", chances, np.eye(4)) - np.einsum("nk,nl->nkl", chances, chances)
        hessian = np.einsum("na,nb,nkl->akbl", inputs, inputs, inner).reshape(12, 12) / 20
        return np.linalg.eigvalsh(hessian)[-1]

    here, points = rng.normal(size=12), rng.normal(size=(1, 12))
    found = secant_smoothness(gradient(points[0])[None], gradient(here)[None], points, here)
    along = [largest_curvature(here + share * (points[0] - here)) for share in np.linspace(0, 1, 101)]
    assert 0 < found <= max(along) * (1 + 1e-3)


def test_the_mean_square_of_minibatch_deviations_is_sigma_squared():
    # Gradients of a quadratic with N(0, s^2) added to each of M coordinates: sigma^2 = M s^2 = 50 * 0.09 = 4.5. The
    # mean of 4000 estimates, each with relative standard deviation sqrt(2 / 50), misses by 2 % once in 10^9.
    rng = np.random.default_rng(5)
    squares = [minibatch_deviation(*(0.3 * rng.normal(size=(2, 1, 50)))) ** 2 for _ in range(4000)]
    assert np.mean(squares) == pytest.approx(4.5, rel=0.02)


def test_dispersion_of_shifted_parabolas_is_the_largest_distance_from_the_mean_centre():
    # F_i = ||w - b_i||^2 / 2: gradients differ by the centres, wherever w is.
    centres, here = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 6.0]]), np.array([7.0, -3.0])
    assert gradient_dispersion(here - centres, np.full(3, 1 / 3)) == pytest.approx(4.0)
    assert gradient_dispersion(here - centres, np.array([0.5, 0.5, 0.0])) == pytest.approx(6.0)
