"""Noise calibrated to an account: the target is met, and barely."""

import pytest

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.calibration import scaled, smallest_factor

DELTA = 1e-5
MANY = {ReleaseType(8.0, 5, 0.05, "poisson"): 300}
FEW = {ReleaseType(1.0, 1, 0.05, "poisson"): 10}


def rdp(composition):
    return ACCOUNTANTS["rdp"].epsilon(composition, DELTA)


@pytest.mark.parametrize("target", [0.3, 1.0, 4.0])
def test_the_smallest_factor_meets_the_target_and_a_smaller_one_does_not(target):
    factor = smallest_factor([MANY], target, rdp)
    assert rdp(scaled(MANY, factor)) <= target
    assert rdp(scaled(MANY, factor * 0.995)) > target


@pytest.mark.parametrize("target", [0.3, 4.0])
def test_every_composition_meets_the_target(target):
    factor = smallest_factor([FEW, MANY], target, rdp)
    assert max(rdp(scaled(FEW, factor)), rdp(scaled(MANY, factor))) <= target
    assert max(rdp(scaled(FEW, factor * 0.995)), rdp(scaled(MANY, factor * 0.995))) > target


def test_a_target_that_no_noise_meets_is_told():
    with pytest.raises(UserError, match=r"privacy\.epsilon: no noise up to 1e\+06 times .* meets the target of 1"):
        smallest_factor([{ReleaseType(1.0, 1, 0.1): 1}], 1.0, lambda _: 2.0)
