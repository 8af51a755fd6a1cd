"""Which shift has which probability, and the privacy loss of a mixture."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from h2fdp.privacy.accounting import ReleaseType, mixture_of
from h2fdp.privacy.accounting.mixtures import PLAIN_GAUSSIAN, coarse_mixture_of, privacy_loss

RELEASES = st.builds(ReleaseType, st.floats(0.05, 1e4), steps=st.integers(1, 200), sampling_rate=st.floats(1e-6, 1.0))


def as_dictionary(mixture):
    return dict(zip(*mixture, strict=True))


def at_least(mixture, shift):
    """The probability of a shift of at least this much."""
    return sum(chance for s, chance in zip(*mixture, strict=True) if s >= shift - 1e-12)


def test_the_accounted_shift_counts_the_steps_from_the_first_draw():
    found = as_dictionary(mixture_of(ReleaseType(1.0, steps=3, sampling_rate=0.3)))
    assert found == pytest.approx({1.0: 0.3, 2 / 3: 0.21, 1 / 3: 0.147, 0.0: 0.343})


def test_the_shift_counts_the_draws_where_steps_do_not_expand():
    found = as_dictionary(mixture_of(ReleaseType(1.0, steps=3, sampling_rate=0.3, bound="draws")))
    assert found == pytest.approx({0.0: 0.343, 1 / 3: 0.441, 2 / 3: 0.189, 1.0: 0.027})


@pytest.mark.parametrize("rule", [mixture_of, coarse_mixture_of])
def test_a_record_in_every_batch_is_a_plain_gaussian(rule):
    assert rule(ReleaseType(1.0, 7, 1.0)) == PLAIN_GAUSSIAN


@given(RELEASES)
def test_probabilities_are_positive_and_sum_to_one(release):
    for rule in (mixture_of, coarse_mixture_of):
        mixture = rule(release)
        assert min(mixture.probabilities) > 0
        assert math.fsum(mixture.probabilities) == pytest.approx(1, abs=1e-12)
        assert len(set(mixture.shifts)) == len(mixture.shifts)
        assert 0 <= min(mixture.shifts) <= max(mixture.shifts) <= 1


@given(RELEASES)
def test_draws_first_draws_and_any_draw_are_ordered_stochastically(release):
    draws = mixture_of(replace(release, bound="draws"))
    accounted, coarse = mixture_of(release), coarse_mixture_of(release)
    for step in range(1, release.steps + 1):
        shift = step / release.steps
        assert at_least(draws, shift) <= at_least(accounted, shift) + 1e-12
        assert at_least(accounted, shift) <= at_least(coarse, shift) + 1e-12


@given(RELEASES)
def test_the_privacy_loss_increases_and_averages_to_a_probability(release):
    points = np.linspace(-20, 20 + 1 / release.noise_multiplier, 4001)
    loss = privacy_loss(mixture_of(release), release.noise_multiplier, points)
    assert (np.diff(loss) >= -1e-13 * np.abs(loss[1:])).all()
    density = np.exp(loss - points**2 / 2) / math.sqrt(2 * math.pi)
    assert integrate.trapezoid(density, points) == pytest.approx(1, abs=1e-9)
