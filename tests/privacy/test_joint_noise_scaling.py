"""Why devices may not share one noise over several local steps: an attack on the variant that is not offered.

Each of s devices adds its part of a noise, sigma / sqrt(s), at every one of m local steps, and only the sum of their
models is opened. It is tempting to account m releases under sigma. But a device's second gradient is taken at its own
model, which carries its own part of the noise only; other records of the device can turn that gradient by 2 G, which is
2 b times what one record does, and no noise hides that.
"""

import math

import numpy as np
from scipy.stats import binom, norm

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType

ROUNDS, STEPS, NOISE, DELTA = 40, 2, 12.0, 1e-5  # noise in units of what one record moves a step by


def chance_of_turning(devices, present):
    """The other records turn the second gradient if the model, moved by the record or not, is above half that way."""
    own = NOISE / math.sqrt(devices)
    return norm.sf((0.5 - present) / own)


def smallest_epsilon(devices, overlap):
    """Of what an observer learns who counts in how many rounds the gradient turned; they are `overlap` noises apart."""
    counts = np.arange(ROUNDS + 1)
    mistaken = norm.sf(overlap / 2)  # of one round's sum for the other
    laws = []
    for present in (1, 0):
        turned = chance_of_turning(devices, present)
        laws.append(binom.pmf(counts, ROUNDS, turned * (1 - mistaken) + (1 - turned) * mistaken))
    with_record, without = laws
    grid = np.linspace(0, 30, 3001)
    spent = [np.maximum(with_record - math.exp(epsilon) * without, 0).sum() for epsilon in grid]
    return float(grid[np.argmax(np.array(spent) <= DELTA)])


def accounted():
    return ACCOUNTANTS["pld"].epsilon({ReleaseType(NOISE, 1, 1.0, bound="record"): ROUNDS * STEPS}, DELTA)


def test_the_sum_of_several_noisy_local_steps_reveals_more_than_its_joint_noise_accounts_for():
    """50 devices with batches of 600: turned gradients are 1,200 records apart, 100 standard deviations."""
    assert smallest_epsilon(devices=50, overlap=1200 / NOISE) > 2 * accounted()


def test_with_one_device_the_shares_are_the_whole_and_the_account_holds():
    assert smallest_epsilon(devices=1, overlap=1200 / NOISE) <= accounted()


def test_the_attack_needs_the_turn_to_be_seen():
    """A batch of one record: the turn is no larger than the record itself, and drowns."""
    assert smallest_epsilon(devices=50, overlap=2 / NOISE) < accounted() / 3
