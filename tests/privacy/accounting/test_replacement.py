"""A record replaced by another one that is drawn at the same steps: the dominating pair, against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.privacy import GradientSumMechanism
from h2fdp.privacy.accounting import ACCOUNTANTS, ORDERS, ReleaseType, mixture_of, rdp_of
from h2fdp.privacy.accounts import release_type
from h2fdp.privacy.gradient_bounds import ClippedBatches, ClippedRecords
from tests.privacy.accounting.gaussian_oracle import exact_gaussian_epsilon
from tests.privacy.accounting.hockey_stick import both_directions, line_density, plane_density
from tests.privacy.accounting.real_mechanisms import CALIBRATION, Losses, rows_about

DELTA = 1e-5
EPSILONS = np.array([0.0, 0.1, 0.3, 1.0, 2.0, 4.0])


def replaced(noise, rate, steps=1, **options):
    """One record moves the release by 1 at most: of two, outputs are at most 2 apart, which is the sensitivity."""
    return ReleaseType(noise / 2, steps, rate, replaced=True, **options)


def of_pair(noise, rate, grid):
    moved = line_density([0.0, 1.0], [1 - rate, rate], noise, grid)
    return moved, line_density([0.0, -1.0], [1 - rate, rate], noise, grid)


@pytest.mark.parametrize("angle", [math.pi, 2.0, 1.0, 0.3])
@pytest.mark.parametrize(("length", "other"), [(1.0, 1.0), (1.0, 0.4), (0.5, 0.5), (1.0, 0.0)])
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.6, 0.5), (2.0, 0.9)])
def test_opposite_gradients_of_full_length_are_the_worst_two(noise, rate, length, other, angle):
    """All other pairs in the plane have smaller hockey-stick divergences at every epsilon, in both directions."""
    grid = np.linspace(-7 * noise - 1, 7 * noise + 1, 481)
    line = np.linspace(-9 * noise - 1, 9 * noise + 1, 20001)
    cell = (grid[1] - grid[0]) ** 2
    vectors = np.array([[length, 0.0], [other * math.cos(angle), other * math.sin(angle)]])
    pair = [plane_density([(0.0, 0.0), vector], [1 - rate, rate], noise, grid) for vector in vectors]
    worst = both_directions(*of_pair(noise, rate, line), EPSILONS, line[1] - line[0])
    assert (both_directions(*pair, EPSILONS, cell) <= worst * (1 + 1e-3) + 1e-9).all()  # what the grid misses


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), noise=st.floats(0.5, 3), rate=st.floats(0.05, 0.95), steps=st.integers(2, 4))
def test_several_steps_are_covered_by_the_full_shift_whenever_the_record_is_drawn(seed, noise, rate, steps):
    """Whatever the shifts of a first draw at each step are, of both records, as long as none exceeds 1."""
    draws = np.random.default_rng(seed)
    chances = [(1 - rate) ** step * rate for step in range(steps)] + [(1 - rate) ** steps]
    grid = np.linspace(-9 * noise - 1, 9 * noise + 1, 4001)
    pair = [line_density([*draws.uniform(-1, 1, steps), 0.0], chances, noise, grid) for _ in range(2)]
    never = (1 - rate) ** steps
    worst = both_directions(*of_pair(noise, 1 - never, grid), EPSILONS, grid[1] - grid[0])
    assert (both_directions(*pair, EPSILONS, grid[1] - grid[0]) <= worst * (1 + 1e-6) + 1e-12).all()
    assert mixture_of(replaced(noise, rate, steps)).probabilities == pytest.approx((1 - never, never))


def epsilon_by_integration(noise, rate, delta):
    """Of one release, by bisection on a fine grid."""
    grid = np.linspace(-12 * noise - 1, 12 * noise + 1, 400_001)
    moved, mirrored = of_pair(noise, rate, grid)
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        spent = np.maximum(moved - np.exp(middle) * mirrored, 0).sum() * (grid[1] - grid[0])
        low, high = (low, middle) if spent <= delta else (middle, high)
    return high


@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.01), (0.7, 0.3), (3.0, 0.9), (0.4, 0.05)])
def test_pld_is_exact_and_rdp_above_it(noise, rate):
    exact = epsilon_by_integration(noise, rate, DELTA)
    kind = replaced(noise, rate)
    assert ACCOUNTANTS["pld"].epsilon({kind: 1}, DELTA) == pytest.approx(exact, rel=1e-3)
    assert ACCOUNTANTS["rdp"].epsilon({kind: 1}, DELTA) >= exact * (1 - 1e-6)


def test_pld_of_many_is_that_of_their_losses_added_up():
    """A hundred releases: losses drawn by brute force on a grid of their own, convolved by powers of its transform."""
    noise, rate, count, step = 2.0, 0.1, 100, 2e-4
    grid = np.linspace(-20, 20, 400_001)
    moved, mirrored = of_pair(noise, rate, grid)
    losses = np.rint(np.log(moved / mirrored) / step).astype(int)
    size = 1 << 18
    law = np.bincount(losses % size, moved * (grid[1] - grid[0]), minlength=size)
    total = np.fft.irfft(np.fft.rfft(law) ** count, size)
    values = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
    epsilon = ACCOUNTANTS["pld"].epsilon({replaced(noise, rate): count}, DELTA)
    spent = [(np.maximum(1 - np.exp(each - values), 0) * total).sum() for each in (epsilon * 0.99, epsilon * 1.01)]
    assert spent[0] > DELTA > spent[1]


@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.01), (0.7, 0.3), (5.0, 0.9), (0.5, 0.999)])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_renyi_divergences_are_those_of_quadrature(noise, rate, order):
    grid = np.linspace(-40 * noise - 40, 40 * noise + 40, 400_001)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        a, b = grid / noise**2 - 1 / (2 * noise**2), -grid / noise**2 - 1 / (2 * noise**2)
        over = np.logaddexp(math.log1p(-rate), math.log(rate) + a)
        under = np.logaddexp(math.log1p(-rate), math.log(rate) + b)
    terms = np.exp(order * over + (1 - order) * under - grid**2 / (2 * noise**2))
    moment = terms.sum() * (grid[1] - grid[0]) / (noise * math.sqrt(2 * math.pi))
    found = rdp_of(replaced(noise, rate))[list(ORDERS).index(order)]
    assert found == pytest.approx(math.log(moment) / (order - 1), rel=1e-6)


@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_without_sampling_it_is_a_gaussian_of_twice_the_sensitivity(name):
    found = ACCOUNTANTS[name].epsilon({replaced(6.0, 1.0): 4}, DELTA)
    assert found == pytest.approx(
        exact_gaussian_epsilon(6.0 / 2 / math.sqrt(4), DELTA), rel=0.2 if name == "rdp" else 1e-3
    )
    assert found == ACCOUNTANTS[name].epsilon({replaced(6.0, 0.1, sampling="fixed"): 4}, DELTA)


@given(noise=st.floats(0.7, 5), rate=st.floats(0.01, 1), count=st.integers(1, 50))
@settings(max_examples=20)
def test_replacing_costs_more_than_removing_and_no_more_than_both_in_turn(noise, rate, count):
    """Removing one record and adding another: (2 epsilon, (1 + exp(epsilon)) delta)."""
    removing = ACCOUNTANTS["pld"].epsilon({ReleaseType(noise, 1, rate): count}, DELTA)
    replacing = ACCOUNTANTS["pld"].epsilon({replaced(noise, rate): count}, DELTA)
    in_turn = ACCOUNTANTS["pld"].epsilon({replaced(noise, rate): count}, min(DELTA * (1 + math.exp(removing)), 0.999))
    assert removing * (1 - 1e-3) <= replacing
    assert in_turn <= 2 * removing * (1 + 1e-3)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), records=st.integers(1, 4), steps=st.integers(1, 3), by_record=st.booleans())
def test_where_all_records_are_drawn_the_row_is_the_distance_of_two_uploads(seed, records, steps, by_record):
    """A mean that is clipped to G is within 2 G of any other, with a Poisson batch as with a fixed one; of the two
    worst records the distance is all of it, and the account is that of a plain Gaussian."""
    random, step_size, norm = np.random.default_rng(seed), 0.3, 1.7
    losses, worst = Losses.drawn(random, records - 1), Losses(np.array([1e9]), False, np.zeros(0), np.zeros(0))
    bound = (ClippedRecords if by_record else ClippedBatches)(norm)
    moved = float(bound.sensitivity(step_size, steps, np.array([float(records)]))[0])
    of_row = {}
    for sampling in ("poisson", "fixed"):
        changes = {"steps": np.full(1, steps), "records": np.full(1, records), "step_size": step_size}
        (of_row[sampling],) = rows_about(
            GradientSumMechanism(CALIBRATION, bound, "tight"), "edge", "device", "replace",
            np.ones(1), np.ones(1), np.full(1, 2 * moved), changes | {"sampling": sampling},
        )  # fmt: skip
    row = of_row["poisson"]

    def distance(found, number):
        drawn = np.ones((1, steps, number))
        one, other = (found.upload(drawn, at, number, step_size, norm, by_record) for at in (1.0, -1.0))
        return abs(float(one[0] - other[0]))

    assert distance(losses, records) <= row.sensitivity * (1 + 1e-9)
    assert row.sensitivity == of_row["fixed"].sensitivity == pytest.approx(moved * (2 if by_record else 1))
    if not by_record:
        assert distance(worst, 1) == pytest.approx(row.sensitivity)
    exact = exact_gaussian_epsilon(row.noise_std / row.sensitivity, DELTA)
    assert ACCOUNTANTS["pld"].epsilon({release_type(row): 1}, DELTA) == pytest.approx(exact, rel=1e-3)


def test_batches_that_may_lack_the_record_have_both_ways_to_the_null_record():
    """The pair has three centres: without the record, and on either side of it."""
    changes = {"steps": np.full(1, 1), "records": np.full(1, 4), "step_size": 0.3, "sampling": "poisson"}
    mechanism = GradientSumMechanism(CALIBRATION, ClippedBatches(1.0), "tight")
    rows = [
        rows_about(mechanism, "edge", "device", "replace", np.ones(1), np.full(1, rate), np.full(1, 1.0), changes)[0]
        for rate in (0.999, 1.0)
    ]
    assert [row.sensitivity for row in rows] == pytest.approx([1.2, 0.6])
