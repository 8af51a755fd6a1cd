"""On 40 settings: pld never above rdp, the mixture never above the coarse bound."""

from itertools import product

import pytest

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType, coarse

DELTA = 1e-5
SETTINGS = list(product([0.4, 1.0, 3.0, 12.0, 50.0], [0.002, 0.1], [1, 20], [1, 300]))
TOLERANCE = 1 + 5e-4  # of each upper bound by privacy loss distributions
FLOOR = 1e-5


@pytest.mark.slow
def test_the_numbers_are_in_order():
    for noise_multiplier, sampling_rate, steps, count in SETTINGS:
        composition = {ReleaseType(noise_multiplier, steps, sampling_rate): count}
        pld = ACCOUNTANTS["pld"].epsilon(composition, DELTA)
        tolerance = TOLERANCE if pld < 100 else 1.01
        assert pld <= ACCOUNTANTS["rdp"].epsilon(composition, DELTA) * tolerance + FLOOR, composition
        assert pld <= coarse(composition, DELTA) * tolerance + FLOOR, composition


@pytest.mark.parametrize("sampling_rate", [0.02, 0.3])
def test_fixed_batches_cost_at_least_what_poisson_ones_do(sampling_rate):
    poisson, fixed = (ReleaseType(5.0, 5, sampling_rate, sampling) for sampling in ("poisson", "fixed"))
    for accountant in (ACCOUNTANTS["rdp"], ACCOUNTANTS["pld"]):
        assert accountant.epsilon({poisson: 50}, DELTA) < accountant.epsilon({fixed: 50}, DELTA)
