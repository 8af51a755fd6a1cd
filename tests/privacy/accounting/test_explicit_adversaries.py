"""The laws behind `attained`, against all batches of all steps gone through; and what they attain, by another way.

`tests/run/test_adversaries_in_runs.py` trains the same losses.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType, SeenUpload, attained
from h2fdp.privacy.accounting.adversaries import ADVERSARIES, pair_of, upload_law
from tests.privacy.accounting.hockey_stick import both_directions, line_density
from tests.privacy.accounting.seen import alone
from tests.privacy.accounting.worst_losses import outcomes

PLD = ACCOUNTANTS["pld"]
RATES = st.one_of(st.sampled_from([0.25, 0.5, 1.0]), st.floats(0.05, 0.95))
UPLOADS = st.builds(
    SeenUpload,
    st.just(1.0),
    steps=st.integers(1, 3),
    sampling_rate=RATES,
    sampling=st.sampled_from(["poisson", "fixed"]),
    effect=st.sampled_from(["batch", "record"]),
)


def sensitivity(upload, records):
    """Of an upload of steps of at most one unit (2 eta m G, or R4 of the specification)."""
    if upload.effect == "batch":
        return 2 * upload.steps
    return min(2.0, 1 / (upload.sampling_rate * records)) + 2 * (upload.steps - 1)


def by_enumeration(upload, records, adversary, present):
    """Position -> probability, less the least position without the record."""
    drawn = upload.sampling_rate, upload.steps, upload.sampling, upload.effect
    found = defaultdict(float)
    for place, chance in outcomes(records, *drawn, adversary == "pushing", present):
        found[round(place, 6)] += chance
    return found


@settings(deadline=None, max_examples=150)
@given(UPLOADS, st.integers(1, 4), st.sampled_from(ADVERSARIES))
def test_each_law_is_that_of_all_batches_of_all_steps(upload, records, adversary):
    law = upload_law(upload, records, adversary)
    unit = law.unit * sensitivity(upload, records)
    exact = [by_enumeration(upload, records, adversary, present) for present in (True, False)]
    least = min(place for places in exact for place, chance in places.items() if chance > 0)
    first = min(np.flatnonzero(law.present)[0], np.flatnonzero(law.absent)[0])
    for places, stated in zip(exact, (law.present, law.absent), strict=True):
        assert math.fsum(stated) == pytest.approx(1, abs=1e-12)
        found = np.zeros(stated.size + 1)
        for place, chance in places.items():
            position = (place - least) / unit + first
            assert abs(position - round(position)) < 1e-3
            found[round(position)] += chance
        np.testing.assert_allclose(found[:-1], stated, atol=1e-12)


def exact_epsilon(pairs, delta, step):
    """Of the outputs themselves, on a grid: the smallest epsilon of both directions at this delta.

    Args:
        pairs: (shifts, probabilities) with the record, and without, in units of the noise.
    """
    low = min(min(shifts) for shifts, _ in pairs) - 9
    high = max(max(shifts) for shifts, _ in pairs) + 9
    grid = np.arange(low, high, step)
    present, absent = (line_density(*each, 1.0, grid) for each in pairs)

    def excess(epsilon):
        return both_directions(present, absent, [epsilon], step).max() - delta

    return 0.0 if excess(0.0) <= 0 else optimize.brentq(excess, 0, 200, xtol=1e-9)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(UPLOADS, st.integers(1, 4), st.floats(0.1, 3.0), st.sampled_from([1e-2, 1e-5]))
def test_what_one_upload_attains_is_the_divergence_of_all_its_outputs(upload, records, noise_multiplier, delta):
    seen = upload._replace(noise_multiplier=noise_multiplier)
    noise = noise_multiplier * sensitivity(upload, records)
    found = attained({(seen,): 1}, records, delta)
    exact = 0.0
    for adversary in ADVERSARIES:
        laws = [by_enumeration(upload, records, adversary, present) for present in (True, False)]
        pairs = [(np.array(list(law)) / noise, list(law.values())) for law in laws]
        exact = max(exact, exact_epsilon(pairs, delta, 0.004))
    assert found <= exact * (1 + 1e-4) + 2e-5
    assert found >= exact * 0.998 - 2e-5


@pytest.mark.slow
def test_a_sum_of_two_uploads_under_one_noise_and_another_upload_by_brute_force():
    """Three uploads: two in one vector, one by itself; every pair of vectors on a plane of outputs."""
    records, delta = 3, 1e-3
    first = SeenUpload(1.0, 2, 0.4, "poisson", "batch")
    second, third = first._replace(steps=1), first._replace(steps=3)
    together = (first._replace(noise_multiplier=0.9), second._replace(noise_multiplier=1.8))  # 2 and 1 steps
    apart = third._replace(noise_multiplier=1.1)

    def law(upload, present):
        return by_enumeration(upload, records, "turning", present).items()

    step = 0.02
    densities = []
    for present in (True, False):
        sums = Counter()
        for place, chance in law(first, present):
            for other, other_chance in law(second, present):
                sums[place + other] += chance * other_chance
        grids = np.arange(-12, 12, step)
        along = line_density(np.array(list(sums)) / 3.6, list(sums.values()), 1.0, grids)
        across = line_density(*np.array([(place / 6.6, chance) for place, chance in law(third, present)]).T, 1.0, grids)
        densities.append(np.multiply.outer(along, across))
    exact = optimize.brentq(lambda each: both_directions(*densities, [each], step**2).max() - delta, 0, 50)
    found = attained({together: 1, (apart,): 1}, records, delta)
    assert exact * 0.998 <= found <= exact * (1 + 1e-4)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.2, 20.0),
    st.integers(1, 12),
    st.floats(0.001, 1.0),
    st.sampled_from(["poisson", "fixed"]),
    st.sampled_from(["batch", "record", "draws"]),
    st.integers(2, 400),
    st.integers(1, 300),
    st.sampled_from([1e-2, 1e-5, 1e-10]),
)
def test_what_is_attained_is_never_above_the_account(noise, steps, rate, sampling, bound, records, count, delta):
    batch = rate * records
    own = min(1.0, 0.5 / batch) if bound == "record" else 1.0
    release = ReleaseType(noise, steps, rate, sampling, bound=bound, own_gradient=own)
    lower, upper = attained({alone(release): count}, records, delta), PLD.epsilon({release: count}, delta)
    assert lower <= upper * (1 + 1e-9)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.tuples(st.floats(0.5, 20.0), st.integers(1, 6), st.floats(0.2, 1.0)), min_size=1, max_size=3),
    st.floats(0.005, 1.0),
    st.integers(1, 300),
    st.integers(1, 200),
)
def test_a_sum_attains_no_more_than_its_parts_are_accounted_for(parts, rate, records, count):
    """Parts of one vector at different weights: the account has each of them under its own noise."""
    together = math.sqrt(math.fsum((noise * weight) ** 2 for noise, _, weight in parts))
    vector = tuple(sorted(SeenUpload(together / weight, steps, rate, "poisson", "batch") for _, steps, weight in parts))
    composition = Counter()
    for noise, steps, _ in parts:
        composition[ReleaseType(noise, steps, rate)] += count
    assert attained({vector: count}, records, 1e-5) <= PLD.epsilon(composition, 1e-5) * (1 + 1e-9)


@pytest.mark.parametrize(
    "release", [ReleaseType(1.3, 1, 0.05, bound="record", own_gradient=0.5), ReleaseType(9.0, 8, 0.3, bound="draws")]
)
def test_single_steps_by_record_and_draws_that_do_not_expand_are_attained_exactly(release):
    records = 1200
    composition = {release: 200}
    found = attained({alone(release): 200}, records, 1e-5)
    assert 0.998 * PLD.epsilon(composition, 1e-5) <= found <= PLD.epsilon(composition, 1e-5)


def test_noisy_steps_in_one_upload_are_seen_as_their_sum():
    """Four steps of DP-SGD, q = 1: one Gaussian of four shifts under twice the noise of one."""
    step = SeenUpload(3.0 * 2, 1, 1.0, "poisson", "step")
    one = SeenUpload(1.5, 1, 1.0, "poisson", "step")
    assert attained({(step,) * 4: 5}, 100, 1e-5) == pytest.approx(attained({(one,): 5}, 100, 1e-5), rel=1e-6)


def test_more_company_attains_more():
    upload = (SeenUpload(1.0, 5, 1 / 600, "poisson", "batch"),)
    found = [attained({upload: 200}, records, 1e-5) for records in (1, 10, 100, 1000, 10_000)]
    assert found == sorted(found)
    assert found[-1] > 1.5 * found[0]
    full = PLD.epsilon({ReleaseType(1.0, 5, 1 / 600): 200}, 1e-5)
    assert 0.998 * full <= found[-1] <= full


def test_a_vector_without_noise_gives_everything_away():
    assert attained({(SeenUpload(0.0, 1, 0.5, "poisson", "batch"),): 1}, 10, 1e-5) == math.inf
    assert attained({}, 10, 1e-5) == 0


def test_a_law_of_too_many_places_is_left_out():
    """The lower bound is then that of the other adversary."""
    large = SeenUpload(1.0, 20, 0.3, "poisson", "record")
    assert pair_of((large,), 1200, "turning") is None
    assert attained({(large,): 10}, 1200, 1e-5) > 0
