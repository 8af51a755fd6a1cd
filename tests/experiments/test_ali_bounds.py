"""ALI-DPFL's closed form for tau (second version) and its search (first version)."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ali_dpfl.bounds import DpSgdNoise, ali_first_optimum, ali_optimum, with_noise
from experiments.resource_budget.drift import DriftConstants, drift_bound


class Losses(NamedTuple):
    """L, mu, Gamma, Delta_1 of the second version."""

    smoothness: float
    curvature: float
    heterogeneity: float
    start_distance: float


noises = st.builds(
    DpSgdNoise,
    st.floats(0.01, 10),
    st.one_of(st.just(0.0), st.floats(0.01, 5)),
    st.integers(1, 100_000),
    st.floats(1, 500),
)
magnitudes = st.floats(1e-3, 1e3)
losses = st.builds(Losses, magnitudes, st.floats(0.05, 20), st.floats(0, 20), magnitudes)


def bound_of_rounds(tau, eta, of, noise):
    """G(tau) of (11); the bound h(tau) of (8) is tau / T times it."""
    s2 = noise.noise_multiplier**2 * noise.clip_norm**2 * noise.parameters / noise.batch**2
    a = (2 + eta * of.curvature) * (noise.clip_norm**2 + s2)
    rest = a + 4 / of.curvature**2 + 3 * noise.clip_norm**2 + 2 * of.heterogeneity / eta + s2
    return of.smoothness / 2 * (a * tau + of.start_distance - 2 * a + rest / tau)


@given(st.integers(1, 2000), losses, noises)
def test_with_rounds_fixed_the_closed_form_is_where_the_bound_is_least(total, of, noise):
    # (9) is (11) minimised at the step size 1 / (mu T).
    best = float(ali_optimum(total, of.curvature, of.heterogeneity, noise))
    taus = np.arange(1, min(math.ceil(best), 10**6) + 3)
    values = bound_of_rounds(taus, 1 / (of.curvature * total), of, noise)
    if best < 10**6:
        below, above = values[math.floor(best) - 1], values[math.ceil(best) - 1]
        assert min(below, above) <= values.min() * (1 + 1e-12)


@given(losses, noises, st.integers(1, 2000))
def test_with_iterations_fixed_one_local_step_is_best(of, noise, total):
    """Lemma 1."""
    taus = np.arange(1, 50)
    values = taus / total * bound_of_rounds(taus, 1 / (of.curvature * total), of, noise)
    assert values.argmin() == 0


@given(st.integers(1, 2000), st.floats(0.05, 20), st.floats(0, 20), noises)
def test_the_program_asks_for_fewer_local_steps_than_the_paper(total, mu, gamma, noise):
    paper, program = (ali_optimum(total, mu, gamma, noise, form) for form in ("paper", "program"))
    assert 1 <= program <= paper
    scale = (2 + 1 / total) / (2 + 2 / total)
    assert program**2 - 1 == pytest.approx((paper**2 - 1) * scale, abs=1e-9 * paper**2)


constants = st.builds(DriftConstants, st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))


@given(st.integers(0, 40), st.floats(1e-3, 0.5), constants, noises)
def test_the_first_versions_drift_is_the_papers_with_its_brackets_mended(steps, eta, of, noise):
    xi = of.divergence + 2 * math.sqrt(noise.parameters) * noise.noise_multiplier * noise.clip_norm / noise.batch
    rate = eta * of.smoothness
    expected = eta * xi * math.fsum((1 + rate) ** z - 1 for z in range(steps))  # the sum that the proof starts from
    found = float(drift_bound(steps, eta, with_noise(of, noise)))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6 * eta * xi)
    assert found == 0 or steps > 1


def first_bound_by_hand(tau, total, eta, of, noise, omega, least):
    phi = omega * (1 - of.smoothness * eta / 2)
    bracket = eta * phi - of.lipschitz * float(drift_bound(tau, eta, with_noise(of, noise))) / (tau * least**2)
    return 1 / (total * bracket) + math.sqrt(3) / 3 if bracket > 0 else math.inf


@given(
    st.integers(1, 60),
    st.integers(1, 400),
    st.integers(1, 2000),
    st.floats(1e-3, 0.5),
    constants,
    noises,
    st.floats(0.1, 10),
    st.floats(0.1, 100),
)
def test_the_first_versions_search_finds_the_least_bound(longest, rounds, left, eta, of, noise, omega, least):
    found = ali_first_optimum(longest, rounds, left, eta, of, noise, omega, least)
    values = [
        first_bound_by_hand(tau, min(rounds * tau, left), eta, of, noise, omega, least) for tau in range(1, longest + 1)
    ]
    if found is None:
        assert min(values) == math.inf
    else:
        assert values[found - 1] == pytest.approx(min(values), rel=1e-9)
        shorter = values[: found - 1]
        assert not shorter or min(shorter) > values[found - 1] * (1 - 1e-9)
