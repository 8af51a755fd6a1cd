"""Correlated noise: its factors, its sensitivity against all patterns of participation, and its covariance."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import signal, stats

from h2fdp.privacy import Holder, Place
from h2fdp.privacy.correlated import CorrelatedGaussian, StreamPast
from h2fdp.privacy.views import Sensitivities
from h2fdp.streams import Streams
from tests.privacy.uploads import uploads_of

KINDS = ("banded-inverse", "banded")
LAWS = [CorrelatedGaussian(kind, bands) for kind in KINDS for bands in (2, 3, 5, 40)]


def toeplitz(column, size):
    matrix = np.zeros((size, size))
    for lag, value in enumerate(column[:size]):
        matrix += value * np.eye(size, k=-lag)
    return matrix


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_both_columns_are_those_of_a_matrix_and_of_its_inverse(law):
    size = 30
    factor, mixed = toeplitz(law.factor(size), size), toeplitz(law.mixed(size), size)
    np.testing.assert_allclose(factor @ mixed, np.eye(size), atol=1e-12)
    assert factor.min() >= 0, "an account takes the absolute value of each"
    banded = mixed if law.kind == "banded-inverse" else factor
    assert np.count_nonzero(banded[-1]) == min(law.bands, size)


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_bands_it_is_the_square_root_of_prefix_sums(kind):
    factor = toeplitz(CorrelatedGaussian(kind, 9).factor(9), 9)
    np.testing.assert_allclose(factor @ factor, np.tril(np.ones((9, 9))), atol=1e-12)


def test_factors_are_those_of_jax_privacy():
    """jax_privacy 2.0.0, `toeplitz`: `optimal_max_error_strategy_coefs(5)`, `inverse_coef` of these to 8 numbers,
    `optimal_max_error_noising_coefs(5)`."""
    strategy = [1.0, 0.5, 0.375, 0.3125, 0.2734375]
    inverse = [1.0, -0.5, -0.125, -0.0625, -0.0390625, 0.21875, -0.041015625, -0.0322265625]
    np.testing.assert_allclose(CorrelatedGaussian("banded", 5).factor(5), strategy, rtol=1e-12)
    np.testing.assert_allclose(CorrelatedGaussian("banded", 5).mixed(8), inverse, rtol=1e-12)
    np.testing.assert_allclose(CorrelatedGaussian("banded-inverse", 5).mixed(8), inverse[:5], rtol=1e-12)


JAX_PRIVACY = [  # 2.0.0: `toeplitz.minsep_sensitivity_squared(factor, between, ceil(releases / between), releases)`
    (CorrelatedGaussian("banded", 5), 12, 1, 60.00048828125),
    (CorrelatedGaussian("banded", 5), 12, 3, 8.77508544921875),
    (CorrelatedGaussian("banded", 5), 12, 5, 4.3760986328125),
    (CorrelatedGaussian("banded", 5), 40, 1, 229.574462890625),
    (CorrelatedGaussian("banded", 5), 40, 3, 32.651123046875),
    (CorrelatedGaussian("banded", 5), 40, 5, 12.50439453125),
    (CorrelatedGaussian("banded-inverse", 4), 12, 1, 76.02676831674762),
    (CorrelatedGaussian("banded-inverse", 4), 12, 3, 10.714843430789188),
    (CorrelatedGaussian("banded-inverse", 4), 12, 5, 5.7830586296040565),
    (CorrelatedGaussian("banded-inverse", 4), 40, 1, 360.15232889805986),
    (CorrelatedGaussian("banded-inverse", 4), 40, 3, 47.25265686957502),
    (CorrelatedGaussian("banded-inverse", 4), 40, 5, 19.18609301490371),
]


@pytest.mark.parametrize(("law", "count", "between", "squared"), JAX_PRIVACY, ids=str)
def test_sensitivities_are_those_of_jax_privacy(law, count, between, squared):
    patterns = np.stack([np.ones(count), (np.arange(count) % between == 0) * 1.0], axis=1)
    row = told_of(law, patterns, np.ones((count, 2)))[1]
    assert float(row @ row) == pytest.approx(squared, rel=1e-9)


@pytest.mark.parametrize(("law", "count"), [(law, count) for law in LAWS for count in (1, 2, 7)], ids=str)
def test_the_noise_of_a_sum_of_releases(law, count):
    levels = np.linspace(1.0, 2.0, count)
    assert law.variance(levels) == pytest.approx(np.square(toeplitz(law.mixed(count), count).T @ levels).sum())


def told_of(law, patterns, moves, by_node=True):
    """(devices, releases) the rows that a ledger would have of devices that take part in these releases (r, s)."""
    past, rows = law.begun(patterns.shape[1]), []
    for present, moved in zip(patterns, moves, strict=True):
        who = np.flatnonzero(present)
        if not who.size:
            continue
        place, ones = Place(Holder.NODE if by_node else Holder.DEVICE), np.ones(len(who))
        levels = np.full(1 if by_node else len(who), 2.0)
        uploads = uploads_of(place, ones, ones, levels, rows=who)
        reach = Sensitivities(moved[who] * 2.0, ones, ones, "poisson", "batch")
        past, known, joint = past.joined(law, uploads, reach, unaccounted=())
        row = np.zeros(patterns.shape[1])
        row[known.rows] = joint.moved / known.levels
        rows.append(row)
    return np.array(rows).T


def patterns_of(size, between):
    """All sets of releases that are at least so far apart, as rows of 0 and 1."""
    for pattern in itertools.product((0, 1), repeat=size):
        there = np.flatnonzero(pattern)
        if there.size and (np.diff(there) >= between).all():
            yield np.array(pattern, dtype=float)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.parametrize("between", [1, 3, 5])
def test_the_account_is_that_of_each_pattern_and_the_earliest_is_the_worst(law, size, between):
    """(F4) against the matrix, for every pattern of at most 12 releases: each is a device of one edge server."""
    patterns = np.array(list(patterns_of(size, between)))
    everybody = np.ones((1, size))  # so that each release of the edge server is sent
    rows = told_of(law, np.concatenate([everybody, patterns]).T, np.ones((size, len(patterns) + 1)))[1:]
    exact = np.linalg.norm(toeplitz(law.factor(size), size) @ patterns.T, axis=0)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), exact, rtol=1e-12)
    earliest = np.zeros(size)
    earliest[::between] = 1
    worst = np.linalg.norm(toeplitz(law.factor(size), size) @ earliest)
    assert exact.max() == pytest.approx(worst, rel=1e-12)
    if law.kind == "banded" and law.bands <= between and size > (len(earliest.nonzero()[0]) - 1) * between + law.bands:
        closed = math.sqrt(earliest.sum()) * np.linalg.norm(law.factor(law.bands))
        assert worst == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_directions_of_a_records_moves_exceed_the_account(law):
    """A record moves release r by a vector of length x_r; what is seen of that is |C diag(x) U|."""
    random, size = np.random.default_rng(3), 9
    factor = toeplitz(law.factor(size), size)
    for _ in range(300):
        lengths = random.uniform(0, 1, size) * (random.random(size) < 0.6)
        account = np.linalg.norm(told_of(law, np.ones((size, 1)), lengths[:, None]))
        directions = random.normal(size=(size, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        assert np.linalg.norm(factor @ (lengths[:, None] * directions)) <= account * (1 + 1e-12)
        same = lengths[:, None] * directions[:1]
        assert np.linalg.norm(factor @ same) == pytest.approx(account, rel=1e-12)


def test_a_device_has_a_clock_of_its_own_and_an_edge_server_that_of_all_its_averages():
    law, ones = CorrelatedGaussian("banded-inverse", 4), np.ones((5, 2))
    turns = np.array([[1, 0], [0, 1], [1, 0], [0, 0], [1, 1]], dtype=float)
    own = told_of(law, turns, ones, by_node=False)
    factor = law.factor(5)
    np.testing.assert_allclose(own[0], [1, 0, factor[:2].sum(), factor[:3].sum()])
    np.testing.assert_allclose(own[1], [0, 1, 0, factor[:2].sum()])
    served = told_of(law, turns, ones)  # nothing is sent in the fourth round, whose number the fifth has
    np.testing.assert_allclose(served[0], toeplitz(factor, 4) @ [1, 0, 1, 1])
    np.testing.assert_allclose(served[1], toeplitz(factor, 4) @ [0, 1, 0, 1])


def test_no_factor_beats_a_matched_schedule_of_independent_noise_for_full_participation():
    """(F1): |C 1| |C^-T a| >= |sum a| for every lower-triangular C; noise of variance 1 / |a_t| attains it (F2)."""
    random, size = np.random.default_rng(5), 6
    for _ in range(3000):
        factor = np.tril(random.normal(size=(size, size)))
        factor[np.diag_indices(size)] = random.uniform(0.2, 2.0, size)
        effects = random.uniform(-0.2, 1.0, size)
        sd = np.linalg.norm(factor @ np.ones(size)) * np.linalg.norm(np.linalg.solve(factor.T, effects))
        assert sd >= abs(effects.sum()) * (1 - 1e-12)
    positive = random.uniform(0.1, 1.0, size)
    matched = np.diag(np.sqrt(positive))
    attained = np.linalg.norm(matched @ np.ones(size)) * np.linalg.norm(np.linalg.solve(matched.T, positive))
    assert attained == pytest.approx(positive.sum())


def earliest_of(size, between):
    """(size,) the releases of a record that is in the first one and in each that is so many later."""
    return (np.arange(size) % between == 0) * 1.0


def left(law, size, between, effects=None):
    """The noise of the last model over that of independent noise of the same account; `effects` (size,) of releases."""
    earliest, effects = earliest_of(size, between), np.ones(size) if effects is None else effects
    sensitivity = np.linalg.norm(np.convolve(law.factor(size), earliest)[:size])
    independent = math.sqrt(earliest.sum()) * np.linalg.norm(effects)
    return sensitivity * math.sqrt(law.variance(effects)) / independent


@dataclass(frozen=True)
class Buffered(CorrelatedGaussian):
    """BLT, as experiments/accounts/ compares it: c_0 = 1, c_j = sum_i omega_i theta_i^(j-1)."""

    theta: tuple[float, ...]
    omega: tuple[float, ...]

    def _columns(self, size):
        powers = np.power.outer(np.array(self.theta), np.arange(size - 1.0))
        factor = np.concatenate([[1.0], np.array(self.omega) @ powers])
        return factor, signal.lfilter([1.0], factor, np.eye(1, size)[0])


def buffered(theta, omega):
    return Buffered("banded", len(theta), theta, omega)


# Releases, separation, the buffers that make the noise of the last model least; their squared sensitivity and error by
# jax_privacy 2.0.0: `toeplitz.minsep_sensitivity_squared`, and `toeplitz.per_query_error` of `inverse()` at the end.
# The first two are of its own `buffered_toeplitz.optimize(n=40, min_sep=5, max_participations=8, error="max")`.
BUFFERS = [
    (12, 3, ((1.0, 0.67243), (0.04291, 0.56812)), 11.262672468704858, 2.1269219463066222),
    (40, 5, ((1.0, 0.67243), (0.04291, 0.56812)), 25.208817458653243, 3.6886838720324464),
    (40, 10, ((0.9999, 0.7931), (0.0549, 0.4663)), 10.999069742779078, 2.851860890431775),
    (200, 5, ((0.8083,), (0.7754,)), 217.83213521418836, 8.830569732277581),
    (200, 10, ((0.887,), (0.6216,)), 96.08560415638041, 5.857084250732775),
    (1000, 5, ((0.8646,), (0.8453,)), 2172.75961595532, 20.04774584334211),
    (1000, 10, ((0.9209,), (0.666,)), 948.947571382212, 12.37917046331076),
]


@pytest.mark.parametrize(("size", "between", "buffers", "squared", "error"), BUFFERS, ids=str)
def test_buffers_have_the_sensitivity_and_the_error_of_jax_privacy(size, between, buffers, squared, error):
    law = buffered(*buffers)
    moved = np.convolve(law.factor(size), earliest_of(size, between))[:size]
    assert moved @ moved == pytest.approx(squared, rel=1e-9)
    assert law.variance(np.ones(size)) == pytest.approx(error, rel=1e-9)
    if size == 12:
        exact = [np.linalg.norm(toeplitz(law.factor(size), size) @ each) for each in patterns_of(size, between)]
        assert max(exact) ** 2 == pytest.approx(squared, rel=1e-9)


LEFT = {  # the table of experiments/accounts/: bands as the separation, the best number of bands, and these; buffers
    (40, 5): (0.539, 5, 0.539, 0.539),
    (40, 10): (0.439, 10, 0.439, 0.443),
    (200, 5): (0.514, 15, 0.493, 0.490),
    (200, 10): (0.392, 20, 0.377, 0.375),
    (1000, 5): (0.509, 30, 0.470, 0.467),
    (1000, 10): (0.382, 50, 0.346, 0.343),
}


@pytest.mark.parametrize(("case", "shown"), LEFT.items(), ids=str)
def test_buffers_leave_hardly_less_noise_than_bands(case, shown):
    (size, between), (turns, best, least, buffers) = case, shown
    parameters = next(each for *found, each, _, _ in BUFFERS if tuple(found) == case)
    assert left(CorrelatedGaussian("banded", between), size, between) == pytest.approx(turns, abs=6e-4)
    assert left(CorrelatedGaussian("banded", best), size, between) == pytest.approx(least, abs=6e-4)
    assert left(buffered(*parameters), size, between) == pytest.approx(buffers, abs=6e-4)
    others = [left(CorrelatedGaussian("banded", each), size, between) for each in (2, 4, 5, 10, 15, 20, 30, 50, 100)]
    assert min(others) > least - 6e-4


def test_buffers_that_are_made_for_another_curvature_leave_more_than_independent_noise():
    """Steps decay to 0 linearly, and a step shrinks the noise before it by a share of its size."""
    steps = np.arange(40, 0, -1) / 40

    def effects(curvature):
        return steps * np.append(np.cumprod((1 - curvature * steps)[:0:-1])[::-1], 1.0)

    flat, curved, bands = buffered((1.0,), (1.0,)), buffered((0.769,), (1.0,)), CorrelatedGaussian("banded", 5)
    found = {each: [left(law, 40, 5, effects(each)) for law in (bands, flat, curved)] for each in (0.0, 0.3)}
    assert found[0.0] == pytest.approx([0.533, 0.480, 0.506], abs=6e-4)
    assert found[0.3] == pytest.approx([0.515, 1.217, 0.484], abs=6e-4)


SIZE, RELEASES, ERROR = 20_000, 8, 1e-6  # numbers of a vector; the rate at which the right noise is rejected


def released(law, levels):
    """(releases, SIZE) the noise of a stream."""
    rows, streams = [], Streams(seed=3)
    for number, level in enumerate(levels, start=1):
        vector = torch.zeros(1, SIZE)
        law.add(vector, np.array([level]), [law.key(streams, "a", "noise-global", number, 9 * number, number)])
        rows.append(vector[0].double().numpy())
    return np.stack(rows)


def plausible(values, scale=1.0):
    """Whether the sum of these squares is that of independent N(0, scale^2)."""
    total = float(np.square(values / scale).sum())
    return ERROR / 2 < stats.chi2.cdf(total, values.size) < 1 - ERROR / 2


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_noise_has_its_covariance_and_no_other(law):
    """Right noise is rejected once in a million; two thirds and three halves of it are, always, in any direction."""
    levels = np.linspace(0.5, 2.0, RELEASES)
    noise = released(law, levels) / levels[:, None]
    draws = toeplitz(law.factor(RELEASES), RELEASES) @ noise
    correlations = np.corrcoef(draws)[np.triu_indices(RELEASES, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(SIZE)
    # A record that takes part in all: the best test sees C x along itself.
    attack = toeplitz(law.factor(RELEASES), RELEASES) @ np.ones(RELEASES)
    along = (attack / np.linalg.norm(attack)) @ draws
    plain = np.ones(RELEASES) @ noise  # the model takes up the sum
    model = math.sqrt(law.variance(np.ones(RELEASES)))
    for values, sd in ((draws, 1.0), (along, 1.0), (plain, model)):
        assert plausible(values, sd)
        assert not plausible(values, sd * 2 / 3)
        assert not plausible(values, sd * 3 / 2)


def test_a_release_has_the_same_noise_whatever_came_before_it_and_whatever_it_is_added_to():
    law, streams = CorrelatedGaussian("banded", 3), Streams(seed=3)
    key = law.key(streams, "a", "noise-global", 1, 2, 7)
    assert key == law.key(streams, "a", "noise-local", 5, 6, 7), "its number alone counts"
    assert len(set(key) | set(law.key(streams, "b", "noise-global", 1, 2, 7))) == 14
    some, same, other = torch.zeros(1, 50), torch.zeros(1, 50), torch.zeros(2, 50)
    law.add(some, np.array([1.5]), [key])
    law.add(same, np.array([1.5]), [key])
    law.add(other, np.array([1.0, 1.5]), [law.key(streams, "b", "", 0, 0, 2), key])
    assert some.equal(same)
    assert other[1].equal(some[0])


def test_a_past_goes_on_from_its_state():
    law = CorrelatedGaussian("banded-inverse", 2)
    past = law.begun(3)
    uploads = uploads_of("edge", [0.5, 0.5], [1.0, 1.0], [0.25], rows=np.array([0, 2]))
    past, _, _ = past.joined(
        law, uploads, Sensitivities(np.ones(2), np.ones(2), np.ones(2), "fixed", "batch"), unaccounted=()
    )
    again = StreamPast.of_state(past.state())
    assert again.likeness == past.likeness
    assert past.moved.tolist() == [[2.0], [0.0], [2.0]]
    assert past.counts.tolist() == [1, 1, 1]
