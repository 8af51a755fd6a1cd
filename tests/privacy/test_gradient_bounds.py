"""How far one record moves an upload: each bound against the engines themselves, draw by draw."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import Proximal
from h2fdp.privacy.accounting import ReleaseType, mixture_of
from h2fdp.privacy.gradient_bounds import ClippedRecords, LinearScores, StepsDoNotExpand
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import Descent, gain
from h2fdp.training.loop import LoopEngine
from h2fdp.training.stacked import StackedEngine

FEATURES, CLASSES, RECORDS = 2, 3, 6
ROUNDING = 2e-6  # of models of this size in 32 bits
SEEDS = st.integers(0, 10**6)


def softmax_regression(bias=False):
    return nn.Linear(FEATURES, CLASSES, bias=bias)


def perceptron():
    return nn.Sequential(nn.Linear(FEATURES, 3), nn.Tanh(), nn.Linear(3, CLASSES))


def drawn(random, steps, rate):
    """The draws of a device with `RECORDS` records, the last of which is the one that is in question."""
    return random.random((steps, RECORDS)) < rate


def batches(draws, expected):
    counts = draws.sum(axis=1)
    indices = np.zeros((len(draws), 1, max(int(counts.max(initial=0)), 1)), dtype=np.int64)
    for slot, row in enumerate(draws):
        indices[slot, 0, : counts[slot]] = np.flatnonzero(row)
    return Batches(indices, counts[:, None], None, np.array([expected]))


def moved(engine, start, records, draws, expected, step_size):
    """How far the upload moves when the last record becomes a null record: same draws of all others, same divisor."""
    without = draws.copy()
    without[:, -1] = False
    ways = [
        engine.train(start[None], records, np.array([0]), batches(each, expected), step_size).updates[0]
        for each in (draws, without)
    ]
    return float(torch.linalg.vector_norm(ways[0].double() - ways[1].double()))


def situation(seed, module, scale=1.0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(RECORDS, FEATURES))
    x *= scale / np.linalg.norm(x, axis=1, keepdims=True)
    records = DeviceRecords(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(random.integers(0, CLASSES, RECORDS)),
        np.array([0, RECORDS]),
        torch.ones(FEATURES),
        torch.zeros(FEATURES),
    )
    torch.manual_seed(seed)
    size = sum(each.numel() for each in module.parameters())
    return random, records, 3 * torch.randn(size)


def first_and_number(draws):
    times = np.flatnonzero(draws[:, -1])
    return (int(times[0]) + 1 if times.size else None), times.size


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([1, 2, 4]), st.sampled_from([0.2, 0.5, 1.0]), st.sampled_from([0.0, 0.6]))
def test_a_clipped_record_moves_an_upload_no_further_than_its_first_draw_allows(seed, steps, rate, momentum):
    """R4, with shifts as in the account: own gradient over (m - 1) whole turns later."""
    module, step_size, norm = perceptron(), 0.5, 0.7
    random, records, start = situation(seed, module, scale=4.0)
    expected, draws = rate * RECORDS, drawn(random, steps, rate)
    clipping = Clipping(norm, "record", mean_too=True)
    engine = LoopEngine(module, clipping, Descent(Plain(), momentum))
    bound = ClippedRecords(norm, lambda m: gain(momentum, m))
    first, _ = first_and_number(draws)
    whole, own = (
        float(each[0])
        for each in (
            bound.sensitivity(step_size, steps, np.array([expected])),
            bound.own_gradient(np.array([expected])),
        )
    )
    allowed = 0.0 if first is None else whole * (steps - first + own) / (steps - 1 + own)
    assert moved(engine, start, records, draws, expected, step_size) <= allowed + ROUNDING


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([1, 3, 6]), st.sampled_from([0.25, 0.5, 1.0]), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_where_steps_do_not_expand_each_draw_moves_by_one_gradient(seed, steps, rate, bias, mu):
    """R6, at the largest step size that R5 allows, for draws that are not typical at all."""
    module, scores = softmax_regression(bias), LinearScores(1.0, bias)
    random, records, start = situation(seed, module)
    expected, draws = rate * RECORDS, drawn(random, steps, random.uniform(0.1, 1.0))
    step_size = scores.largest_step(np.array([1 / rate]), mu)
    engine = LoopEngine(module, None, Descent(Proximal(mu=mu) if mu else Plain()))
    _, number = first_and_number(draws)
    allowed = (
        number / steps * float(StepsDoNotExpand(scores.gradient).sensitivity(step_size, steps, np.array([expected]))[0])
    )
    assert moved(engine, start, records, draws, expected, step_size) <= allowed + ROUNDING


def test_larger_steps_do_expand():
    """Beyond R5 the bound by draws fails: the condition is no formality."""
    module, scores, rate = softmax_regression(), LinearScores(1.0, False), 1.0
    step_size = 12 * scores.largest_step(np.array([1 / rate]), 0.0)
    bound, worst = StepsDoNotExpand(scores.gradient), 0.0
    for seed in range(12):
        _, records, start = situation(seed, module)
        draws = np.ones((5, RECORDS), dtype=bool)
        draws[1:, -1] = False  # once, at the beginning
        engine = LoopEngine(module, None, Descent(Plain()))
        allowed = float(bound.sensitivity(step_size, 5, np.array([RECORDS]))[0]) / 5
        worst = max(worst, moved(engine, 0.1 * start, records, draws, RECORDS, step_size) / allowed)
    assert worst > 1.05


def test_without_clipping_the_mean_again_a_large_batch_moves_an_upload_by_more_than_2g_a_step():
    """A Poisson batch of all records, where half a record is expected: each later step may turn by 2 G D / b."""
    norm, expected = 0.5, 0.5
    far = torch.full((RECORDS, 1), 100.0)
    records = DeviceRecords(
        far, torch.tensor([0] * (RECORDS - 1) + [1]), np.array([0, RECORDS]), torch.ones(1), torch.zeros(1)
    )
    draws = np.ones((2, RECORDS), dtype=bool)
    draws[0, :-1] = False  # the record alone, then everybody
    module, start = nn.Linear(1, 2, bias=False), torch.tensor([0.35, -0.35])  # all others are content
    bound = float(ClippedRecords(norm).sensitivity(1.0, 2, np.array([expected]))[0])
    found = {
        again: moved(
            LoopEngine(module, Clipping(norm, "record", again), Descent(Plain())), start, records, draws, expected, 1.0
        )
        for again in (False, True)
    }
    assert found[True] <= bound + ROUNDING
    assert found[False] > 1.5 * bound


@pytest.mark.parametrize("norm", [None, 0.3])
def test_engines_agree_on_sums_over_the_expected_batch(norm):
    module = perceptron()
    random, records, start = situation(5, module, scale=4.0)
    clipping = None if norm is None else Clipping(norm, "record", mean_too=True)
    asked = batches(drawn(random, 3, 0.9), 1.5)
    ways = [
        engine.train(start[None], records, np.array([0]), asked, 0.5).updates[0]
        for engine in (
            LoopEngine(module, clipping, Descent(Plain())),
            StackedEngine(module, clipping, Descent(Plain()), 4),
        )
    ]
    torch.testing.assert_close(*ways, rtol=1e-5, atol=1e-6)


def test_softmax_regressions_gradient_and_smoothness_by_brute_force():
    """Norms of gradients and eigenvalues of Hessians at 160 random models and records, from torch's derivatives."""
    random = np.random.default_rng(3)
    for bias in (False, True):
        scores, gradients, curvatures = LinearScores(1.0, bias), [], []
        for _ in range(80):
            x = random.normal(size=FEATURES)
            x = torch.from_numpy(np.append(x / np.linalg.norm(x), [1.0] * bias))
            label = torch.tensor(int(random.integers(CLASSES)))
            model = torch.from_numpy(random.normal(size=(CLASSES, len(x))) * random.choice([0.1, 1, 20]))

            def loss(flat, x=x, label=label):
                return nn.functional.cross_entropy(flat.view(CLASSES, -1) @ x, label)

            gradients.append(float(torch.func.grad(loss)(model.flatten()).norm()))
            curvatures.append(
                float(torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, model.flatten())).max())
            )
        assert 0.97 * scores.gradient < max(gradients) <= scores.gradient
        assert 0.9 * scores.smoothness < max(curvatures) <= scores.smoothness + 1e-12


def test_the_accounts_shifts_are_the_bounds_by_the_first_draw():
    steps, own = 4, 0.1
    mixture = mixture_of(ReleaseType(1.0, steps, 0.3, bound="record", own_gradient=own))
    by_hand = [(own + later) / (own + 3) for later in (3, 2, 1, 0)]
    assert mixture.shifts == pytest.approx((*by_hand, 0.0))
    assert mixture.probabilities == pytest.approx((0.3, 0.7 * 0.3, 0.49 * 0.3, 0.343 * 0.3, 0.7**4))
