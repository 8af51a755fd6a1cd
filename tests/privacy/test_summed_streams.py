"""Sums of correlated noises, each on the clock of its device (F5): rows against explicit linear algebra."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import block_diag

from h2fdp.privacy import Holder, Place, Tolerance, correlated
from h2fdp.privacy.correlated import CorrelatedGaussian, Summed
from h2fdp.privacy.views import Sensitivities
from h2fdp.schedules.aggregation_times import DeviceTurns
from tests.privacy.test_correlated import toeplitz
from tests.privacy.uploads import uploads_of

LAWS = [Summed(kind, bands) for kind in ("banded-inverse", "banded") for bands in (2, 4)]


def rows_of(law, presence, moves, levels, colluding=0, liars=(), lost=slice(0, 0)):
    """Two arrays (s, T): the rows that a ledger would have of each device, for all observers but peers, and for peers.

    Args:
        presence, moves, levels: (T, s) who is in each sum, how far a record moves a device's upload, and its noise.
        lost: sums after which the run went on from before them.
    """
    before = past = law.begun(presence.shape[1])
    place = Place(Holder.SHARE, tolerance=Tolerance(colluding))
    rows = np.zeros((2, *presence.shape))
    for at, present in enumerate(presence):
        before = past if at == lost.start else before
        past = before.afresh() if at == lost.stop else past
        who = np.flatnonzero(present)
        ones = np.ones(len(who))
        shown = levels[at, who] * ~np.isin(who, liars)
        uploads = uploads_of(place, ones / len(who), ones, shown, rows=who)
        past, seen, joint = past.joined(
            law, uploads, Sensitivities(moves[at, who], ones, ones, "poisson", "batch"), liars
        )
        assert seen.place.by_node
        rows[0, at, seen.rows], rows[1, at, seen.rows] = joint.moved / seen.levels, joint.of_peers / seen.levels
    return rows.transpose(0, 2, 1)


def draws_of(law, presence, levels, left_out):
    """(T, n) what each draw of each device adds to each sum, of the devices whose noise is not known."""
    columns = []
    for device in set(range(presence.shape[1])) - set(left_out):
        there = np.flatnonzero(presence[:, device])
        stream = toeplitz(law.mixed(len(there)), len(there)) if len(there) else np.zeros((0, 0))
        own = np.zeros((len(presence), len(there)))
        own[there] = (levels[there, device] / presence[there].sum(axis=1))[:, None] * stream
        columns.append(own)
    return np.concatenate(columns, axis=1)


def best(quadratic, random):
    """The largest sum of Q_ts <u_t, u_s> over vectors |u_t| <= 1: over all signs, and by ascent over directions."""
    signs = signs_of(len(quadratic))
    ways = random.normal(size=(5, len(quadratic), 4))
    for _ in range(100):
        ways = quadratic @ ways
        ways /= np.maximum(np.sqrt(np.square(ways).sum(axis=-1, keepdims=True)), 1e-300)
    found = (quadratic * (ways @ ways.swapaxes(-1, -2))).sum(axis=(-1, -2))
    return float(max(((signs @ quadratic) * signs).sum(axis=1).max(), found.max()))


@cache
def signs_of(size):
    return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))


def learned(law, presence, moves, levels, device, known, random, lost=slice(0, 0)):
    """mu^2 of all that is seen of a device's record up to each sum, for who knows the noises of some devices."""
    moved = (presence * moves)[:, device] / presence.sum(axis=1)
    draws = draws_of(law, presence, levels, known)
    if lost.stop:  # what comes after is on the same clocks as before, under draws of its own
        kept = np.r_[: lost.start, lost.stop : len(presence)]
        old = draws_of(law, presence[: lost.stop], levels[: lost.stop], known)
        new = draws_of(law, presence[kept], levels[kept], known)[lost.start :]
        draws = block_diag(old, new)
    clear = np.abs(draws).max(axis=1) == 0
    assert not moved[clear].any()
    spent = []
    for last in range(1, len(presence) + 1):
        kept = np.flatnonzero(~clear[:last])
        inverse = np.linalg.pinv(draws[kept] @ draws[kept].T)
        spent.append(best(moved[kept, None] * inverse * moved[kept], random) if kept.size else 0.0)
    return np.array(spent)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("colluding", [0, 1])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_observer_learns_more_than_its_rows_say(law, colluding, seed):
    random = np.random.default_rng(seed)
    presence = random.random((8, 4)) < 0.5
    presence = presence[presence.any(axis=1)]
    moves, levels = random.uniform(0.5, 1.5, presence.shape), random.uniform(1.0, 3.0, presence.shape)
    rows = rows_of(law, presence, moves, levels, colluding)
    for device in range(4):
        others = set(range(4)) - {device}
        for of_peers in (0, 1):
            charged = np.square(rows[of_peers, device]).cumsum()
            for known in itertools.combinations(sorted(others), colluding + of_peers):
                seen = learned(law, presence, moves, levels, device, known, random)
                assert (seen <= charged * (1 + 1e-9) + 1e-12).all(), (device, known)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("lost", [slice(3, 3), slice(3, 5), slice(1, 2)], ids=str)
@pytest.mark.parametrize("known", [0, 1])
def test_a_run_that_goes_on_under_fresh_draws_tells_no_more_than_its_rows_say(law, lost, known):
    """Sums that were released behind the last checkpoint count, and are made again in other company."""
    random = np.random.default_rng(8)
    presence = random.random((8, 4)) < 0.6
    presence[:, 0] = True
    presence[:3, 1:] = [[1, 0, 0], [0, 1, 0], [0, 1, 0]]  # peers of whom each knows most at another time
    moves, levels = random.uniform(0.5, 1.5, presence.shape), random.uniform(1.0, 3.0, presence.shape)
    levels[:3, 1:] *= 5
    rows = rows_of(law, presence, moves, levels, lost=lost)[known]
    for device in range(4):
        for others in itertools.combinations(sorted(set(range(4)) - {device}), known):
            seen = learned(law, presence, moves, levels, device, others, random, lost)
            assert (seen <= np.square(rows[device]).cumsum() * (1 + 1e-9) + 1e-12).all(), (device, others)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("known", [0, 1, 2])
def test_where_all_take_part_it_is_one_stream_under_the_noise_that_is_left(law, known):
    """mu = |C 1| / z sqrt(N / left), exactly, for shares z / sqrt(N) and N - c devices, or N - c - 1 for a peer."""
    devices, size = 5, 6
    ones, shares = np.ones((size, devices)), np.full((size, devices), 2.0 * math.sqrt(devices))
    rows = rows_of(law, ones > 0, ones, shares, max(known - 1, 0))[min(known, 1)]
    whole = toeplitz(law.factor(size), size) @ np.ones(size) / (2.0 * devices)
    expected = whole * math.sqrt(devices / (devices - known))
    np.testing.assert_allclose(rows, np.tile(expected, (devices, 1)))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_devices_that_never_meet_have_their_own_streams(law):
    """In turns of fixed groups each group has full participation on its own clock: (F1) leaves nothing to gain."""
    presence = np.arange(8)[:, None] % 2 == np.arange(4) % 2
    rows = rows_of(law, presence, np.ones((8, 4)), np.full((8, 4), math.sqrt(2)))[0]
    own = toeplitz(law.factor(4), 4) @ np.ones(4) / math.sqrt(2)
    for device in range(4):
        there = presence[:, device]
        np.testing.assert_allclose(rows[device, there], own / math.sqrt(2))
        np.testing.assert_allclose(rows[device, ~there], 0, atol=1e-9)


def test_one_band_is_independent_noise():
    random = np.random.default_rng(4)
    presence, levels = random.random((6, 4)) < 0.6, random.uniform(1, 2, (6, 4))
    presence[:, 0] = True
    rows = rows_of(Summed("banded", 1), presence, np.ones((6, 4)), levels)[0]
    expected = presence / np.sqrt((presence * levels**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(rows, expected.T, atol=1e-9)


def test_the_noise_of_who_lies_hides_no_device():
    law, ones = Summed("banded-inverse", 4), np.ones((5, 3))
    with_liar = rows_of(law, ones > 0, ones, 2 * ones, liars=(2,))[0]
    honest = rows_of(law, ones[:, :2] > 0, ones[:, :2], 2 * ones[:, :2])[0]
    np.testing.assert_allclose(with_liar[:2], honest, rtol=1e-9)


def test_a_sum_of_liars_alone_says_nothing_of_who_took_part_before():
    law, presence = Summed("banded-inverse", 4), np.array([[1, 1, 1], [0, 0, 1], [1, 1, 1]]) > 0
    ones = np.ones(presence.shape)
    rows = rows_of(law, presence, ones, 2 * ones, liars=(2,))
    without = rows_of(law, presence[::2], ones[::2], 2 * ones[::2], liars=(2,))
    np.testing.assert_allclose(rows[:, :2, ::2], without[:, :2], rtol=1e-12)
    assert rows[:, :2, 1].max() < 1e-9


def test_a_past_goes_on_from_its_state():
    law, ones = Summed("banded", 3), np.ones(2)
    past, place = law.begun(3), Place(Holder.SHARE)

    def after(past, rows):
        uploads = uploads_of(place, ones / 2, ones, 2 * ones, rows=np.array(rows))
        return past.joined(law, uploads, Sensitivities(ones, ones, ones, "fixed", "batch"), unaccounted=())

    before, *_ = after(after(past, [0, 1])[0], [1, 2])
    again = type(before).of_state(before.state())
    assert again.likeness == before.likeness
    (one, _, reach), (other, _, same) = after(before, [0, 2]), after(again, [0, 2])
    assert one.likeness == other.likeness
    np.testing.assert_array_equal(reach.moved, same.moved)
    np.testing.assert_array_equal(reach.of_peers, same.of_peers)


@pytest.mark.parametrize("together", [1, 3])
def test_rows_that_are_not_kept_are_the_same(together, monkeypatch):
    """Of 15 sets of devices, the rows of so many fit into memory."""
    law, random = Summed("banded-inverse", 4), np.random.default_rng(7)
    presence, levels = random.random((9, 6)) < 0.6, random.uniform(1, 2, (9, 6))
    presence[:, 0] = True
    kept = rows_of(law, presence, levels, levels, colluding=1)
    monkeypatch.setattr(correlated, "_MOST_NUMBERS", together * 9**2 // 2)
    np.testing.assert_allclose(rows_of(law, presence, levels, levels, colluding=1), kept, rtol=1e-12)


def plausible(values, scale=1.0, error=1e-6):
    total = float(np.square(values / scale).sum())
    return error / 2 < stats.chi2.cdf(total, values.size) < 1 - error / 2


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_along_the_best_attack_the_noise_is_that_of_the_account(law):
    """The right noise is rejected once in a million; two thirds and three halves of it always."""
    random = np.random.default_rng(6)
    presence = random.random((8, 5)) < 0.6
    presence[:, 0] = True
    ones = np.ones(presence.shape)
    draws = draws_of(law, presence, 3 * ones, ())
    noise = draws @ random.normal(size=(draws.shape[1], 20_000))
    inverse, moved = np.linalg.inv(draws @ draws.T), (presence / presence.sum(axis=1, keepdims=True))[:, 0]
    mu = math.sqrt(moved @ inverse @ moved)
    attack = moved @ inverse @ noise / mu
    assert plausible(attack)
    assert not plausible(attack, 2 / 3)
    assert not plausible(attack, 3 / 2)
    account = np.linalg.norm(rows_of(law, presence, ones, 3 * ones)[0, 0])
    assert mu <= account * (1 + 1e-9)


def test_single_streams_and_sums_are_two_laws():
    assert not CorrelatedGaussian("banded", 3).stable
    assert Summed("banded", 3).stable


TABLE = {  # experiments/proofs/: releases, turns, curvature -> independent fixed, changing; four bands the same
    (40, 5, 0.0): (2.34, 2.34, 2.42, 1.39),
    (40, 5, 0.3): (2.24, 2.36, 2.56, 1.55),
}


def noise_of_last(law, presence, effects):
    """The noise of the last model times the largest mu, over the least that full participation allows."""
    count = presence.sum(axis=1, keepdims=True)
    found = []
    for levels in (np.ones(len(effects)), 1 / np.sqrt(effects / effects.max() + 1e-3)):
        shares = levels[:, None] * np.sqrt(count) * np.ones(presence.shape)
        draws = draws_of(law, presence, shares / count, ())
        mu = np.linalg.norm(rows_of(law, presence, np.ones(presence.shape), shares / count)[0], axis=1).max()
        found.append(np.linalg.norm(effects @ draws) * mu)
    return min(found) * presence.shape[1] / effects.sum()


@pytest.mark.parametrize(("case", "shown"), TABLE.items(), ids=str)
def test_own_clocks_gain_where_groups_change_and_nothing_where_they_are_fixed(case, shown):
    size, every, curvature = case
    steps = np.arange(size, 0, -1) / size
    effects = steps * np.append(np.cumprod((1 - curvature * steps)[:0:-1])[::-1], 1.0)
    found = []
    for law in (Summed("banded", 1), Summed("banded-inverse", 4)):
        for regrouped in (False, True):
            presence = np.zeros((size, 50), dtype=bool)
            for interval in range(size):
                presence[interval, DeviceTurns(every, size, regrouped).rows(interval, 50)] = True
            found.append(noise_of_last(law, presence, effects))
    assert found == pytest.approx(shown, abs=6e-3)
