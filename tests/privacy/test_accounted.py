"""Noise calibrated to an account: the target is met, and barely."""

import math
from collections import Counter

import numpy as np
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


def bisected(held, target, exact):
    """The smallest factor, by every point of every bisection: of the account that is worst first, then of others."""
    floor = 1e-6
    while held:
        worst = max(held, key=lambda each: exact(scaled(each, max(floor, 1.0))))
        met = lambda factor: exact(scaled(worst, factor)) <= target  # noqa: B023, E731
        low = high = max(1.0, floor)
        while not met(high):
            low, high = high, high * 2
        while low > floor and (low == high or met(low)):
            low, high = max(low / 2, floor), low
        while not met(low) and math.log(high / low) > 1e-3:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if met(middle) else (middle, high)
        floor = low if met(low) else high
        held = [each for each in held if each is not worst and exact(scaled(each, floor)) > target]
    return floor


@pytest.mark.parametrize("seed", range(12))
def test_the_factor_of_many_accounts_is_that_of_bisecting_each_of_them(seed):
    """To the bit, whatever bounds are looked at first; devices of a moving network have such accounts."""
    rng = np.random.default_rng(seed)
    poisson = bool(rng.integers(2))
    kinds = [
        ReleaseType(float(noise), 1, 0.3 if poisson else 1.0, "poisson", "record") for noise in rng.uniform(1, 9, 4)
    ]
    counts = rng.multinomial(int(rng.integers(5, 60)), rng.dirichlet(np.ones(4)), size=14)
    held = [{kind: int(n) for kind, n in zip(kinds, row, strict=True) if n} for row in counts]
    target, pld, looked_at = float(rng.uniform(0.3, 6)), ACCOUNTANTS["pld"], Counter()

    def exact(composition):
        looked_at["exact"] += 1
        return pld.epsilon(composition, DELTA)

    def quick(composition, enough):
        bound = rdp(composition) * (1 + pld.spread) + 1e-5
        looked_at["quick"] += bound > enough
        return bound if bound <= enough else pld.epsilon(composition, DELTA, enough)

    factor = smallest_factor(held, target, exact, quick)
    assert factor == smallest_factor(held, target, exact)
    looked_at["exact"] = 0
    assert factor == bisected(held, target, exact)
    assert looked_at["quick"] < 0.8 * looked_at["exact"]


def test_a_bound_that_is_enough_need_not_be_sharp_and_a_larger_one_is():
    pld, held = ACCOUNTANTS["pld"], {ReleaseType(4.0, 5, 0.05, "poisson"): 300, ReleaseType(2.0, 1, 1.0): 2}
    sharp = pld.epsilon(held, DELTA)
    for enough in (sharp * 0.5, sharp * (1 - 1e-9)):
        assert pld.epsilon(held, DELTA, enough) == sharp
    for enough in (sharp, sharp * 1.05, sharp * 2):
        assert sharp * (1 - 1e-9) <= pld.epsilon(held, DELTA, enough) <= enough
