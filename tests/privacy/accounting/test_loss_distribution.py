"""The gridded privacy loss: mass, dominance, order of the error, agreement with dp-accounting."""

import numpy as np
import pytest
from scipy.special import ndtr

from h2fdp.privacy.accounting import ReleaseType, loss_composition, mixture_of
from h2fdp.privacy.accounting.accountants import mixtures_epsilon
from h2fdp.privacy.accounting.loss_distribution import loss_distributions, reach_of
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon
from tests.privacy.accounting.hockey_stick import both_directions, line_density

RELEASES = [ReleaseType(0.3, 3, 0.1), ReleaseType(1.0, 5, 0.02), ReleaseType(4.0, 2, 0.5), ReleaseType(1.0, 3, 1.0)]
EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


def delta_of(distribution, interval, epsilon):
    losses = (distribution.lowest + np.arange(distribution.masses.size)) * interval
    return distribution.infinite + float(distribution.masses @ np.maximum(-np.expm1(epsilon - losses), 0))


def gridded(release, interval):
    found = loss_distributions(mixture_of(release), release.noise_multiplier, interval)
    return np.array([[delta_of(direction, interval, epsilon) for epsilon in EPSILONS] for direction in found])


def exact(release):
    cell = release.noise_multiplier / 2000
    grid = np.arange(-10 * release.noise_multiplier, 1 + 10 * release.noise_multiplier, cell)
    with_record = line_density(*mixture_of(release), release.noise_multiplier, grid)
    return both_directions(with_record, line_density([0.0], [1.0], release.noise_multiplier, grid), EPSILONS, cell)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("interval", [1e-3, 0.05, 3.0])
def test_mass_is_exact_on_both_sides(release, interval):
    for direction in loss_distributions(mixture_of(release), release.noise_multiplier, interval):
        losses = (direction.lowest + np.arange(direction.masses.size)) * interval
        assert direction.masses.min() >= 0
        assert direction.masses.sum() + direction.infinite == pytest.approx(1, abs=1e-13)
        assert direction.masses @ np.exp(-losses) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("interval", [1e-3, 0.05, 0.4])
def test_it_dominates_the_exact_divergence_in_both_directions(release, interval):
    assert (gridded(release, interval) >= exact(release) - 1e-8).all()


@pytest.mark.slow
@pytest.mark.parametrize("release", [ReleaseType(1.1, 1, 0.015), ReleaseType(0.4, 3, 0.05), ReleaseType(6.0, 20, 0.02)])
def test_it_agrees_with_the_grid_of_dp_accounting(release):
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism

    theirs = from_mixture_gaussian_mechanism(
        release.noise_multiplier, *mixture_of(release), value_discretization_interval=2e-3
    )
    for count in (1, 60):
        found = mixtures_epsilon({(mixture_of(release), release.noise_multiplier): count}, 1e-5)
        assert found == pytest.approx(theirs.self_compose(count).get_epsilon_for_delta(1e-5), rel=2e-3)


@pytest.mark.parametrize("noise_multiplier", [0.05, 0.3, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("delta", [1e-5, 1e-60])
def test_it_is_not_below_the_exact_gaussian_epsilon_and_near_it(noise_multiplier, delta):
    found = mixtures_epsilon({(mixture_of(ReleaseType(noise_multiplier, 1, 1.0)), noise_multiplier): 1}, delta)
    exact_epsilon = exact_gaussian_epsilon(noise_multiplier, delta)
    assert exact_epsilon <= found <= exact_epsilon * 1.01 + 1e-5


@pytest.mark.parametrize("release", [ReleaseType(2.0, 5, 0.01), ReleaseType(20.0, 5, 0.2), ReleaseType(0.7, 2, 0.003)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-40])
def test_a_far_finer_grid_says_no_more_and_hardly_less(release, delta, monkeypatch):
    mixtures = {(mixture_of(release), release.noise_multiplier): 300}
    found = mixtures_epsilon(mixtures, delta)
    loss_composition.converged_epsilon.cache_clear()
    monkeypatch.setattr(loss_composition, "RELATIVE_TOLERANCE", 1e-6)
    monkeypatch.setattr(loss_composition, "ABSOLUTE_TOLERANCE", 1e-7)
    finer = mixtures_epsilon(mixtures, delta)
    loss_composition.converged_epsilon.cache_clear()
    assert finer <= found <= finer * (1 + 5e-4)


def test_what_lies_beyond_the_reach_does_not_matter_beside_delta():
    for delta, releases in ((1e-5, 1), (1e-5, 10**6), (1e-15, 10**6), (1e-100, 100)):
        assert releases * ndtr(-reach_of(delta, releases)) <= 1e-7 * delta


@pytest.mark.slow
def test_many_types_cost_no_more_than_one_per_cent_and_never_too_little(monkeypatch):
    """Sixty noises of one device under control, by a grid ten times as fine as is needed."""
    rng = np.random.default_rng(3)
    noises, counts = 9 * np.exp(rng.uniform(-1, 0.8, 60)), rng.integers(1, 30, 60).tolist()
    releases = [ReleaseType(float(z), int(m), 0.0267) for z, m in zip(noises, rng.integers(1, 9, 60), strict=True)]
    mixtures = {(mixture_of(each), each.noise_multiplier): count for each, count in zip(releases, counts, strict=True)}
    found = mixtures_epsilon(mixtures, 1e-5)
    loss_composition.converged_epsilon.cache_clear()
    monkeypatch.setattr(loss_composition, "RELATIVE_TOLERANCE", 5e-6)
    finer = mixtures_epsilon(mixtures, 1e-5)
    loss_composition.converged_epsilon.cache_clear()
    assert finer <= found <= finer * 1.001
