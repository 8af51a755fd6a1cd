"""A monotone curve through runs, and the band of one more run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from h2fdp.sweeps.curve import MOST_LEVELS, Curve, levels_between, monotone

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(VALUES, st.data())
def test_pooled_values_are_those_of_isotonic_regression(values, data):
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(values), max_size=len(values)))
    fitted = IsotonicRegression(increasing=False).fit_transform(range(len(values)), values, sample_weight=weights)
    assert monotone(values, weights) == pytest.approx(fitted, abs=1e-9)


@given(VALUES, st.booleans())
def test_a_curve_is_monotone_between_its_levels_and_flat_beyond(values, falls):
    curve = Curve.of_runs([2.0**at for at in range(len(values))], values, falls)
    noise = np.geomspace(0.1, 2.0 ** (len(values) + 1), 200)
    steps = np.diff(curve(noise)) * (1 if falls else -1)
    assert (steps >= -1e-12).all()
    assert curve(0.1) == curve(1.0)
    assert curve(1e9) == curve(2.0 ** (len(values) - 1))


@given(VALUES, st.floats(0, 1), st.booleans())
def test_the_largest_noise_of_a_score_is_the_last_that_reaches_it(values, score, falls):
    curve = Curve.of_runs([2.0**at for at in range(len(values))], values, falls)
    limit, reached = curve.noise_of(score), (lambda noise: curve(noise) <= score if falls else curve(noise) >= score)
    if limit == 0:
        assert not reached(1.0)
    elif limit == np.inf:
        assert reached(2.0**20)
    else:
        assert reached(limit)
        assert not reached(limit * (1 + 1e-6)) or curve(limit * (1 + 1e-6)) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(("deviation", "least", "most"), [(0.01, 0.93, 0.97), (0.015, 0.0, 0.91), (0.005, 0.98, 1.0)])
def test_the_band_holds_one_more_run_in_95_of_100(deviation, least, most):
    """20 x 400 curves of runs of deviation 0.01, and one more run at each level; the share is off by 0.02 with
    probability below 1e-6 (its own deviation is below 0.004), and another deviation of that run shows."""
    rng, inside = np.random.default_rng(0), []
    noise = np.repeat(np.geomspace(1, 64, MOST_LEVELS), 3)
    for _ in range(400):
        curve = Curve.of_runs(noise, 0.9 - 0.1 * np.log(noise) + 0.01 * rng.standard_normal(noise.size))
        levels = noise[::3]
        more = 0.9 - 0.1 * np.log(levels) + deviation * rng.standard_normal(levels.size)
        inside.append(abs(more - curve(levels)) <= curve.band(levels))
    assert least <= np.mean(inside) <= most


def test_few_levels_stand_for_a_short_range():
    assert levels_between(1.0, 1.0).size == 1
    assert levels_between(1.0, 1.3).tolist() == pytest.approx([1.0, 1.3])
    assert levels_between(0.1, 100.0).size == MOST_LEVELS


def test_networks_that_differ_by_seed_have_a_band_of_their_scores_alone():
    """Runs of a level whose noise differs, as networks that are drawn do, but which lie on one line."""
    noise = np.array([1, 1.2, 0.9, 4, 4.4, 3.3, 16, 20, 14])
    curve = Curve.of_runs(noise, 0.9 - 0.1 * np.log(noise), levels=np.repeat([1, 2, 3], 3))
    assert curve.noise == pytest.approx([1.026, 3.872, 16.48], rel=1e-3)
    assert (curve.band(noise) < 0.03).all()
    assert curve(4.0) == pytest.approx(0.9 - 0.1 * np.log(4.0), abs=0.005)
