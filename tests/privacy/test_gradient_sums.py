"""Prop. 3.1 and Lemma 3.2 by numbers worked out by hand, for all four noises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import GradientSumMechanism
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches
from tests.privacy.uploads import levels_of

# sqrt(L log(1/delta)) with L = 4 local, 1 global and delta = exp(-9): 6 and 3.
CALIBRATION = PaperCalibration(epsilon=2.0, delta=math.exp(-9), c2=1.5, local_releases=4, global_releases=1)
UNIFORM = np.array([0.5, 0.5])
RATES = np.array([0.1, 0.2])


def levels(rule, source, weights=UNIFORM, rates=RATES, segments=(2, 3)):
    mechanism = GradientSumMechanism(CALIBRATION, ClippedBatches(10.0), rule)
    return levels_of(mechanism, source, weights, rates, np.full(len(rates), 100), segments, 0.05)


UNEVEN = {"weights": np.array([0.9, 0.1])}


@pytest.mark.parametrize(
    ("rule", "source", "changes", "expected"),
    [
        # (17), (19): Delta = 2 * 0.05 * 5 * 10 = 5; local 1.5 q 5 * 6 / 2 = 22.5 q; global 1.5 q 5 * 3 / 2 = 11.25 q.
        ("paper", "device", {}, [[2.25, 4.5], [1.125, 2.25]]),
        ("paper", "device", UNEVEN, [[2.25, 4.5], [1.125, 2.25]]),
        # (16), (18): Delta = 5 / 2; local 1.5 * 0.2 * 2.5 * 6 / 2 = 2.25; global 1.125.
        ("paper", "edge", {}, [[2.25], [1.125]]),
        # Shares 0.9 and 0.1 at equal rates 0.1: Delta = 5 * 0.9; local 1.5 * 0.1 * 4.5 * 6 / 2.
        ("paper", "edge", UNEVEN | {"rates": np.array([0.1, 0.1])}, [[2.025], [1.0125]]),
        # Two steps: Delta = 2; three steps: Delta = 3.
        ("tight", "device", {}, [[0.9, 1.8], [0.675, 1.35]]),
    ],
)
def test_a_device_covers_its_whole_upload_and_an_edge_server_the_most_exposed_share(rule, source, changes, expected):
    np.testing.assert_allclose(levels(rule, source, **changes), expected)


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
