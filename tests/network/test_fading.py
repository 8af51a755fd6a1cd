"""The quadrature over the floored exponential against adaptive quadrature and series that are exact."""

from itertools import pairwise
from math import exp, expm1, log, log1p

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import exp1

from h2fdp.network.channel import Rayleigh

RATIOS = np.logspace(-6, 12, 19)


def mean_inverse_log(snr, floor):
    """E[1 / ln(1 + SNR max(X, floor))]: one bit over a bandwidth of ln 2."""
    return Rayleigh().mean_seconds(1, np.log(2.0), snr, floor)


def by_adaptive_quadrature(snr, floor):
    def integrand(y):
        return exp(y - exp(y)) / log1p(snr * exp(y))

    stretches = pairwise(np.linspace(log(floor), log(700), 40))
    beyond = sum(quad(integrand, low, high, epsabs=0, epsrel=1e-13)[0] for low, high in stretches)
    return -expm1(-floor) / log1p(snr * floor) + beyond


@pytest.mark.parametrize("floor", [1e-10, 1e-4, 0.01, 0.5, 3.0, 30.0])
def test_agrees_with_adaptive_quadrature_at_every_ratio(floor):
    expected = [by_adaptive_quadrature(snr, floor) for snr in RATIOS]
    assert mean_inverse_log(RATIOS, floor) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("floor", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("snr", [1e-9, 1e-6, 1e-4])
def test_faint_signals_have_a_closed_form(snr, floor):
    """1/ln(1+z) = 1/z + 1/2 - z/12 + O(z^2); the mean of 1/max(X, f) is (1 - e^-f)/f + E1(f), of max(X, f) f + e^-f."""
    series = (-expm1(-floor) / floor + exp1(floor)) / snr + 1 / 2 - snr * (floor + exp(-floor)) / 12
    assert mean_inverse_log(np.array([snr]), floor) == pytest.approx([series], rel=1e-11)


def test_a_floor_that_no_draw_exceeds_leaves_one_value():
    assert mean_inverse_log(np.array([2.0, 7.0]), 60.0) == pytest.approx([1 / log1p(120), 1 / log1p(420)], rel=1e-14)


def test_many_devices_in_pieces_are_the_same_as_each_alone():
    ratios = np.logspace(-3, 9, 70_001)
    whole = mean_inverse_log(ratios, 0.01)
    for index in (0, 32_767, 32_768, 65_536, 70_000):
        assert mean_inverse_log(ratios[index : index + 1], 0.01) == pytest.approx([whole[index]], rel=1e-15)


def test_the_mean_without_a_floor_would_grow_without_bound():
    means = [mean_inverse_log(np.array([1.0]), floor)[0] for floor in (1e-2, 1e-4, 1e-8, 1e-16)]
    slopes = np.diff(means) / (log(10) * np.array([2, 4, 8]))
    assert slopes == pytest.approx([1, 1, 1], rel=0.02)  # 1/ln(1+x) ~ 1/x: a logarithm of the floor
