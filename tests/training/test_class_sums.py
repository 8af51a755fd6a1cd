"""Class sums and second moments as one step, and the discriminant of them, against sums and solvers written out."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from h2fdp.algorithms import LocalObjective
from h2fdp.algorithms.one_shot import ClassSums, discriminant
from h2fdp.algorithms.own import OwnObjective
from h2fdp.config.own_answers import Origin
from h2fdp.data.public_features import BIAS
from h2fdp.models.architectures import SHARE
from h2fdp.models.construct import build
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY, minimised
from tests.training.groups import records

CLASSES, SIDE = 10, 5
LENGTH = 1.3


def module():
    return build("public-features", (SIDE,), CLASSES, {"size": SIDE - 1, "head": "discriminant"})


def by_hand(x, y):
    """(n, M) what each record adds: class sums, and the upper triangle of x x^T, one after the other."""
    rows = []
    for record, label in zip(x.astype(np.float64), y, strict=True):
        sums = np.zeros((CLASSES, SIDE))
        sums[label] = SHARE**0.5 * record
        triangle = [
            (1 - SHARE) ** 0.5 * record[i] * record[j] * (1.0 if i == j else 2**0.5)
            for i in range(SIDE)
            for j in range(i, SIDE)
        ]
        rows.append(np.concatenate([sums.ravel(), triangle]))
    return np.array(rows)


def clipped(vectors, length):
    return vectors * np.minimum(1.0, length / np.linalg.norm(vectors, axis=1))[:, None]


def update(engine, held, drawn, divisor, start=None):
    """(M,) of one device that steps once on the records drawn."""
    length = module_size() if start is None else len(start)
    start = torch.zeros(length) if start is None else start
    indices = np.zeros((1, 1, max(1, len(drawn))), np.int64)
    indices[0, 0, : len(drawn)] = drawn
    batches = Batches(indices, np.array([[len(drawn)]]), expected=np.array([divisor]))
    one = engine.train(start[None], held, np.array([0]), batches, 1.0)
    return one.updates[0].double().numpy()


def module_size():
    return CLASSES * SIDE + SIDE * (SIDE + 1) // 2


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("start", [0.0, 3.0])
def test_an_update_is_the_mean_of_clipped_sums_with_the_other_sign_from_any_model(engine, start):
    held = records((SIDE,), np.array([8]), 3)
    x, y = (each.numpy() for each in held.gather(np.arange(8)))
    vectors = by_hand(x, y)
    length = float(np.median(np.linalg.norm(vectors, axis=1)))  # half of the records are cut
    made = build_engine(engine, module(), Clipping(length, "record"), Descent(ClassSums()), loss=ClassSums.loss)
    found = update(made, held, np.arange(8), 8.0, torch.full((module_size(),), start))
    assert found == pytest.approx(-clipped(vectors, length).sum(axis=0) / 8, abs=2e-6)


def test_no_neighbour_moves_an_update_further_than_its_sensitivity_and_some_move_it_as_far():
    """One record less moves it by at most G / b, another record in its place by at most 2 G / b, of b records."""
    worst, worst_replaced = 0.0, 0.0
    made = build_engine("stacked", module(), Clipping(LENGTH, "record"), Descent(ClassSums()), loss=ClassSums.loss)
    for seed in range(25):
        held = records((SIDE,), np.array([7]), seed)
        with_it = update(made, held, np.arange(6), 6.0)
        without = update(made, held, np.arange(5), 6.0)
        replaced = update(made, held, np.array([0, 1, 2, 3, 4, 6]), 6.0)
        worst = max(worst, np.linalg.norm(with_it - without))
        worst_replaced = max(worst_replaced, np.linalg.norm(with_it - replaced))
    assert 0.999 * LENGTH / 6 < worst <= LENGTH / 6 * (1 + 1e-6)
    assert LENGTH / 6 < worst_replaced <= 2 * LENGTH / 6


class Mine(LocalObjective):
    loss = 0.5


def test_what_users_call_loss_in_an_objective_is_no_loss():
    assert minimised(OwnObjective(Mine(), Origin("mine:Mine")), CROSS_ENTROPY) is CROSS_ENTROPY
    assert minimised(ClassSums(), CROSS_ENTROPY) is ClassSums.loss


def drawn(rng, counts, features=6):
    """Records of unlike classes with a covariance in common: (n, features), (n,)."""
    mixing = rng.standard_normal((features, features)) / 8
    means = rng.standard_normal((len(counts), features)) / 4
    y = np.repeat(np.arange(len(counts)), counts)
    return means[y] + rng.standard_normal((len(y), features)) @ mixing, y


def summed(x, y, classes):
    whole = np.concatenate([x, np.full((len(x), 1), BIAS)], axis=1)
    sums = np.stack([whole[y == label].sum(axis=0) for label in range(classes)]) / len(x)
    return torch.from_numpy(sums), torch.from_numpy(whole.T @ whole / len(x)), whole


def test_without_noise_it_is_the_linear_discriminant_of_the_records(monkeypatch):
    """Of scikit-learn, with shares of classes as they are."""
    monkeypatch.setattr("h2fdp.algorithms.one_shot._LEAST", 1e-12)
    rng = np.random.default_rng(1)
    x, y = drawn(rng, [400, 100, 30])
    sums, moments, whole = summed(x, y, 3)
    scores = whole @ discriminant(sums, moments, 0.2).numpy().T
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y).decision_function(x)
    assert scores == pytest.approx(theirs, rel=1e-6, abs=1e-6)


def symmetric(rng, side, deviation):
    upper = np.triu(rng.standard_normal((side, side)), 1) * deviation / 2**0.5
    return torch.from_numpy(upper + upper.T + np.diag(rng.standard_normal(side)) * deviation)


def test_under_noise_shares_are_equal_and_the_covariance_has_an_inverse():
    """Noise alone, of twenty classes: the constants say what shares were used, in which nothing but noise differs."""
    rng = np.random.default_rng(2)
    classes, side, deviation = 20, 40, 0.05
    for _ in range(20):
        sums = torch.from_numpy(rng.standard_normal((classes, side))) * deviation * ((1 - SHARE) / SHARE) ** 0.5
        sums[:, -1] += BIAS / classes
        weights = discriminant(sums, symmetric(rng, side, deviation), 0.2)
        means = sums[:, :-1] * classes
        log_shares = weights[:, -1] * BIAS + (weights[:, :-1] * means).sum(dim=1) / 2
        assert weights.isfinite().all()
        assert log_shares.numpy() == pytest.approx(np.full(classes, -np.log(classes)), abs=1e-6)


def test_shrinkage_by_the_noise_beats_none_where_noise_is_as_large_as_the_covariance():
    """In each of 12 draws with chance 1/2 if it did not matter: all of them once in 4,096."""
    rng = np.random.default_rng(3)
    better = 0
    for _ in range(12):
        x, y = drawn(rng, [200] * 5, features=30)
        sums, moments, whole = summed(x, y, 5)
        moments = moments + symmetric(rng, 31, 0.05)
        right = [(np.argmax(whole @ discriminant(sums, moments, k).numpy().T, axis=1) == y).mean() for k in (0.2, 0)]
        better += right[0] > right[1]
    assert better >= stats.binom.ppf(1 - 1e-3, 12, 0.5)


def test_noise_near_the_least_eigenvalue_of_the_covariance_costs_little():
    """There an inverse is largest, and second moments, whose eigenvalues stay above 0, do not show the noise."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        x, y = drawn(rng, [200] * 5, features=30)
        sums, moments, whole = summed(x, y, 5)
        covariance = moments[:30, :30] - 5 * sums[:, :30].T @ sums[:, :30]
        deviation = float(torch.linalg.eigvalsh(covariance)[0]) * 4 / 3
        noise = torch.from_numpy(rng.standard_normal(sums.shape)) * deviation * ((1 - SHARE) / SHARE) ** 0.5
        weights = discriminant(sums + noise, moments + symmetric(rng, 31, deviation), 0.2)
        assert (np.argmax(whole @ weights.numpy().T, axis=1) == y).mean() > 0.99
