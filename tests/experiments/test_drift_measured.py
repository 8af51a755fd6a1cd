"""Constants of the losses from what devices measure, by hand."""

import math

import pytest

from experiments.ali_bounds import mean_curvature, mean_loss_change
from experiments.drift import DriftConstants, drift_constants
from tests.experiments.observations import secants


def test_drift_constants_are_weighted_means_over_devices():
    seen = secants(
        weights=[0.25, 0.75],
        distance=[2.0, 4.0],
        loss_local=[1.0, 9.0],
        loss=[5.0, 1.0],
        gradient_change=[1.0, 8.0],
        divergence=[4.0, 8.0],
    )
    # rho = 0.25 * 4/2 + 0.75 * 8/4, beta = 0.25 * 1/2 + 0.75 * 8/4, delta = 0.25 * 4 + 0.75 * 8
    assert drift_constants(seen) == DriftConstants(2.0, 1.625, 7.0)


def test_smoothness_has_a_floor_where_a_device_moved():
    seen = secants(gradient_change=[0.0, 0.0], distance=[0.0, 1.0])
    assert drift_constants(seen).smoothness == pytest.approx(0.5e-5)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("loss_local", math.nan),
        ("loss_local", math.inf),
        ("gradient_change", math.inf),
        ("divergence", math.nan),
        ("distance", math.nan),
    ],
)
def test_what_is_no_number_tells_nothing(name, wrong):
    assert drift_constants(secants(**{name: [wrong, 1.0]})) is None


def test_curvature_of_the_paper_is_that_of_gradients_and_the_programs_that_of_parameters():
    seen = secants(weights=[0.25, 0.75], distance=[2.0, 4.0], gradient_change=[1.0, 8.0], last_step=[4.0, 4.0])
    assert mean_curvature(seen, "gradients") == 0.25 * 0.5 + 0.75 * 2
    assert mean_curvature(seen, "parameters") == 0.25 * 2 + 0.75 * 1


def test_the_programs_heterogeneity_is_the_mean_change_of_loss_over_the_last_step():
    seen = secants(weights=[0.25, 0.75], loss_before=[2.0, 2.0], loss_local=[6.0, 0.0])
    assert mean_loss_change(seen) == 0.5
    assert mean_loss_change(secants(loss_local=[math.nan, 1.0])) is None
