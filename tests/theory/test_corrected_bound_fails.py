"""A network on which private training ends further from a stationary point than the corrected Theorem 4.3 says.

All devices share one loss on one parameter, F'(w) = beta w cut to [-G/3, G]: smooth, with bounded gradients, without
dispersion; training starts at its minimum. The noise of local aggregations makes the gradients on its way those of a
smeared loss, whose minimum is elsewhere, and averaging over any number of subnets does not help. The bound pays for
that in B2^2 only, which vanishes against G^2 in units of length so large that beta is small (see `dispersion.py`), and
in part (b), which vanishes with the number of subnets.
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from h2fdp.theory import LossConstants, PrivacyTerms, Timing, convergence_bound

SUBNETS = 3_000_000  # of one device
LOCAL_STEPS, LOCAL_AGGREGATIONS, INTERVALS = 50, 3, 400
NOISE = PrivacyTerms(1, 0.5, clip_norm=1.0, epsilon=1.0, delta=math.exp(-16.0 / 3), c2=2.0, v2=2.0)


def mean_squared_gradient(representatives):
    """Of the protocol in units where beta = G = 1. So many subnets stand for all: their local noises are spread over
    the normal distribution in equal shares, in random order; the average of 3 million global noises is left out."""
    rng = np.random.default_rng(0)
    equal_shares = norm.ppf((np.arange(representatives) + 0.5) / representatives)
    releases = LOCAL_AGGREGATIONS * INTERVALS
    multiplier = NOISE.c2 * NOISE.sampling_rate * math.sqrt(releases * math.log(1 / NOISE.delta)) / NOISE.epsilon
    aggregations = {round(j * LOCAL_STEPS / (LOCAL_AGGREGATIONS + 1)) for j in range(1, LOCAL_AGGREGATIONS + 1)}
    model, squares = 0.0, []
    for k in range(INTERVALS):
        squares.append(np.clip(model, -1 / 3, 1) ** 2)
        step_size = 1 / (INTERVALS * math.sqrt(k + 1))
        models = np.full(representatives, model)
        for slot in range(1, LOCAL_STEPS + 1):
            models -= step_size * np.clip(models, -1 / 3, 1)
            if slot in aggregations:
                models += multiplier * 2 * step_size * LOCAL_STEPS * rng.permutation(equal_shares)
        model = models.mean()
    return np.mean(squares)


def bound(smoothness):
    constants = LossConstants(smoothness, 0.0, 0.0, subnet_dispersion=np.zeros(SUBNETS))
    timing = Timing(LOCAL_STEPS, LOCAL_AGGREGATIONS, INTERVALS, 1 / (smoothness * INTERVALS))
    one_each = np.ones(SUBNETS)
    return convergence_bound("corrected", 0.0, constants, timing, NOISE, trust=0 * one_each, sizes=one_each)


def test_noise_on_a_loss_with_a_bend_breaks_the_corrected_bound_in_large_units_of_length():
    measured = mean_squared_gradient(representatives=400)  # a squared gradient: the same in any unit of length
    assert measured == pytest.approx(0.1, abs=0.003)
    assert bound(smoothness=1e-9).total == pytest.approx(0.064, abs=0.001)
    assert measured < bound(smoothness=1.0).total


def test_the_spread_representatives_stand_for_random_ones():
    few, many = mean_squared_gradient(100), mean_squared_gradient(800)
    assert few == pytest.approx(many, rel=0.03)
