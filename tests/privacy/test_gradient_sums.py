"""Prop. 3.1 and Lemma 3.2 by numbers worked out by hand, for all four noises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import TRUST_MODELS, GradientSumMechanism, NoiseRequest, PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches

# sqrt(L log(1/delta)) with L = 4 local, 1 global and delta = exp(-9): 6 and 3.
CALIBRATION = PaperCalibration(epsilon=2.0, delta=math.exp(-9), c2=1.5, local_releases=4, global_releases=1)
UNIFORM = np.array([0.5, 0.5])
RATES = np.array([0.1, 0.2])


def levels(rule, source, weights=UNIFORM, rates=RATES, segments=(2, 3)):
    asked = NoiseRequest(TRUST_MODELS[source], segments, 0.05, weights, rates, np.full(len(rates), 100))
    return GradientSumMechanism(CALIBRATION, ClippedBatches(10.0), rule).of_subnet(asked)


def test_untrusted_devices_get_noise_for_their_own_whole_upload_and_rate():
    # (17), (19): Delta = 2 * 0.05 * 5 * 10 = 5; local 1.5 q 5 * 6 / 2 = 22.5 q; global 1.5 q 5 * 3 / 2 = 11.25 q.
    np.testing.assert_allclose(levels("paper", "device"), [[2.25, 4.5], [1.125, 2.25]])


def test_a_trusted_average_gets_one_noise_for_its_most_exposed_share():
    # (16), (18): Delta = 5 / 2; local 1.5 * 0.2 * 2.5 * 6 / 2 = 2.25; global 1.125.
    np.testing.assert_allclose(levels("paper", "edge"), [[2.25], [1.125]])


def test_tight_sensitivity_counts_the_steps_of_each_upload():
    # Two steps: Delta = 2; three steps: Delta = 3.
    np.testing.assert_allclose(levels("tight", "device"), [[0.9, 1.8], [0.675, 1.35]])


def test_unequal_weights_raise_the_noise_of_a_trusted_average_to_the_largest_share():
    # Shares 0.9 and 0.1 at equal rates 0.1: Delta = 5 * 0.9; local 1.5 * 0.1 * 4.5 * 6 / 2.
    found = levels("paper", "edge", weights=np.array([0.9, 0.1]), rates=np.array([0.1, 0.1]))
    np.testing.assert_allclose(found, [[2.025], [1.0125]])


def test_unequal_weights_do_not_change_the_noise_of_single_devices():
    np.testing.assert_array_equal(levels("paper", "device", weights=np.array([0.9, 0.1])), levels("paper", "device"))


def test_nobody_adds_noise_without_privacy():
    assert levels("paper", "none").size == 0


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.001, 1)), min_size=1, max_size=8))
def test_the_trusted_noise_covers_every_device(shares_and_rates):
    weights, rates = np.array(shares_and_rates).T
    weights = weights / weights.sum()
    noise = levels("paper", "edge", weights, rates)
    for weight, rate in zip(weights, rates, strict=True):
        alone = CALIBRATION.noise_std("local", 5.0 * weight, rate)
        assert noise[0, 0] >= alone * (1 - 1e-12)


@pytest.mark.parametrize(("kind", "releases"), [("local", 4), ("global", 1)])
def test_equation_15_term_by_term(kind, releases):
    expected = 1.5 * 0.3 * 7.0 * math.sqrt(releases * 9) / 2.0
    assert CALIBRATION.noise_std(kind, sensitivity=7.0, sampling_rate=0.3) == pytest.approx(expected)
