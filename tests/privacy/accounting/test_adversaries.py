"""The central claim by brute force: whatever clipped training does, the accounted mixture dominates it.

Three steps, q = 0.3, noise multiplier 0.7; the exact output distributions are enumerated and their hockey-stick
divergences compared with the mixture's, in both directions.
"""

from itertools import product

import numpy as np
import pytest

from h2fdp.privacy.accounting import ReleaseType, mixture_of
from tests.privacy.accounting.hockey_stick import both_directions, line_density, plane_density

STEPS, RATE, NOISE = 3, 0.3, 0.7
RELEASE = ReleaseType(NOISE, STEPS, RATE)
EPSILONS = np.linspace(0.0, 4.0, 17)
LINE = np.arange(-6.0, 7.0, 0.004)
PLANE = np.arange(-5.0, 6.0, 0.05)
DRAWS = list(product([False, True], repeat=STEPS))
CHANCES = [float(np.prod([RATE if drawn else 1 - RATE for drawn in draws])) for draws in DRAWS]
EMPTY = line_density([0.0], [1.0], NOISE, LINE)
ACCOUNTED = both_directions(line_density(*mixture_of(RELEASE), NOISE, LINE), EMPTY, EPSILONS, 0.004)
ROUNDING = 1e-7


def reach(draws):
    """The largest shift, in sensitivities, that one record can cause when it is drawn like this."""
    return (STEPS - draws.index(True)) / STEPS if any(draws) else 0.0


def divergences(shifts):
    return both_directions(line_density(shifts, CHANCES, NOISE, LINE), EMPTY, EPSILONS, 0.004)


def test_a_record_that_turns_all_gradients_from_its_first_draw_on_is_the_mixture():
    np.testing.assert_allclose(divergences([reach(draws) for draws in DRAWS]), ACCOUNTED, atol=1e-12)


def test_a_record_that_turns_its_own_gradients_is_the_account_by_draws_and_dominated():
    own = divergences([sum(draws) / STEPS for draws in DRAWS])
    by_draws = mixture_of(ReleaseType(NOISE, STEPS, RATE, bound="draws"))
    expected = both_directions(line_density(*by_draws, NOISE, LINE), EMPTY, EPSILONS, 0.004)
    np.testing.assert_allclose(own, expected, atol=1e-12)
    assert (own <= ACCOUNTED + ROUNDING).all()
    assert own[0, 0] < 0.7 * ACCOUNTED[0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_any_shift_that_depends_on_the_draws_is_dominated(seed):
    rng = np.random.default_rng(seed)
    extremes = rng.choice([-1.0, 1.0], len(DRAWS)) if seed % 2 else rng.uniform(-1, 1, len(DRAWS))
    assert (divergences(extremes * [reach(draws) for draws in DRAWS]) <= ACCOUNTED + ROUNDING).all()


@pytest.mark.parametrize("seed", range(10))
def test_shifts_in_different_directions_are_dominated(seed):
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * np.pi, len(DRAWS))
    shifts = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[reach(draws)] for draws in DRAWS])
    with_record = plane_density(shifts, CHANCES, NOISE, PLANE)
    found = both_directions(with_record, plane_density([[0.0, 0.0]], [1.0], NOISE, PLANE), EPSILONS, 0.05**2)
    assert (found <= ACCOUNTED + 1e-4).all()


def clipped(gradient):
    return float(np.clip(gradient, -1.0, 1.0))


def trained(own_draws, other_draws, own_gradient, other_gradients):
    """The update of three steps on the line, step size 1, G = 1, clipping the mean gradient of a batch.

    A null record is one that is never drawn: it is not counted.
    """
    model = 0.0
    for step in range(STEPS):
        batch = [gradient(model) for gradient, draws in zip(other_gradients, other_draws, strict=True) if draws[step]]
        if own_draws[step]:
            batch.append(own_gradient(model))
        model -= clipped(np.mean(batch)) if batch else 0.0
    return model


def output_divergences(own_gradient, other_gradients, other_rate=0.5):
    """Divergences of the noisy update with the record and without, over all batches of all records."""
    noise = 2 * STEPS * NOISE  # the sensitivity is 2 eta m G = 6
    grid = np.arange(-5.0, 6.0, 0.004) * 2 * STEPS
    others = list(product(DRAWS, repeat=len(other_gradients)))
    weights = [float(np.prod([other_rate if d else 1 - other_rate for draws in o for d in draws])) for o in others]
    kept = [(other, weight) for other, weight in zip(others, weights, strict=True) if weight > 0]
    never = (False,) * STEPS

    def density(draws_and_chances):
        outcomes = [
            (trained(own, other, own_gradient, other_gradients), chance * weight)
            for own, chance in draws_and_chances
            for other, weight in kept
        ]
        return line_density(*zip(*outcomes, strict=True), noise, grid)

    with_record, without = density(list(zip(DRAWS, CHANCES, strict=True))), density([(never, 1.0)])
    return both_directions(with_record, without, EPSILONS, 0.004 * 2 * STEPS)


@pytest.mark.parametrize("seed", range(6))
def test_training_on_random_losses_is_dominated(seed):
    rng = np.random.default_rng(seed)

    def random_gradient():
        height, frequency, phase, slope = rng.normal(size=4) * [3.0, 2.0, 3.0, 1.0]
        return lambda model: height * np.sin(frequency * model + phase) + slope * model

    found = output_divergences(random_gradient(), [random_gradient(), random_gradient()])
    assert found.max() > 1e-3
    assert (found <= ACCOUNTED + ROUNDING).all()


def test_unstable_training_comes_within_a_hundredth_of_the_mixture():
    """The account is tight: a model that runs up wherever it has left its path, and down along it."""
    path = {0.0, -1.0, -2.0}
    found = output_divergences(lambda model: -2.98, [lambda model: 1.0 if model in path else -1.0], other_rate=1.0)
    assert (found <= ACCOUNTED + ROUNDING).all()
    assert found[0, 0] > 0.99 * ACCOUNTED[0, 0]
