"""The reference engine against gradients written out in NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.arithmetic import worker_threads
from h2fdp.data.targets import Target
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords, Evaluator, ModuleScores
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import Descent
from tests.training.groups import evaluate

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 6)).astype(np.uint8)
Y = RNG.integers(0, 3, 12)
RECORDS = DeviceRecords(
    torch.from_numpy(X), torch.from_numpy(Y), np.array([0, 5, 12]), torch.full((6,), 1 / 128), torch.full((6,), -1.0)
)
INPUTS = X / 128 - 1.0
START = RNG.normal(size=(3, 6)).astype(np.float32) * 0.1


def gradients(weights, rows):
    """(b, 3, 6) gradients of the cross-entropy of a linear model, record by record."""
    scores = INPUTS[rows] @ weights.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(rows)), Y[rows]] -= 1
    return shares[:, :, None] * INPUTS[rows][:, None, :]


def clip(vectors, norm):
    norms = np.sqrt((vectors**2).sum(axis=(-2, -1), keepdims=True))
    return vectors * np.minimum(1, norm / norms)


def module():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3, bias=False))


def reference(row, drawn, step_size, transform):
    weights = START.astype(float)
    for positions in drawn:
        if len(positions):
            weights = weights - step_size * transform(gradients(weights, positions + RECORDS.offsets[row]))
    return (START - weights).ravel()


def normalised(gradients, norm, gamma):
    return norm * gradients / (np.sqrt((gradients**2).sum(axis=(-2, -1), keepdims=True)) + gamma)


@pytest.mark.parametrize(
    ("clipping", "transform"),
    [
        (None, lambda each: each.mean(axis=0)),
        (Clipping(0.4, "batch"), lambda each: clip(each.mean(axis=0), 0.4)),
        (Clipping(0.4, "record"), lambda each: clip(each, 0.4).mean(axis=0)),
        (Clipping(0.4, "record", gamma=0.3), lambda each: normalised(each, 0.4, 0.3).mean(axis=0)),
        (Clipping(0.4, "batch", gamma=0.3), lambda each: normalised(each.mean(axis=0), 0.4, 0.3)),
    ],
    ids=["plain", "batch", "record", "normalised records", "normalised batch"],
)
def test_steps_follow_the_gradients_clipped_as_asked(clipping, transform):
    batches = BatchSampler(Streams(1), "e", "poisson", RECORDS.sizes, np.array([0.3, 0.4]), 16).draw(
        0, range(6), np.arange(2)
    )
    engine = build_engine("loop", module(), clipping, Descent(Plain()))
    found = engine.train(torch.from_numpy(START).flatten().expand(2, -1), RECORDS, np.arange(2), batches, 0.5).updates
    for row in range(2):
        expected = reference(row, [batches.of(slot, row) for slot in range(6)], 0.5, transform)
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=2e-5, atol=2e-6)
    assert (batches.counts == 0).any(), "an empty batch is among the cases"


def test_evaluation_counts_each_device_and_the_whole():
    result = evaluate(module(), torch.from_numpy(START).flatten(), RECORDS)
    scores = INPUTS @ START.T.astype(float)
    right = scores.argmax(axis=1) == Y
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(12), Y]
    accuracy, loss = result.by_device
    np.testing.assert_allclose(accuracy, [right[:5].mean(), right[5:].mean()])
    np.testing.assert_allclose(loss, [losses[:5].mean(), losses[5:].mean()], rtol=1e-5)
    assert result.measures["accuracy"] == right.mean()


def test_texts_are_evaluated_by_their_scores_of_all_words_not_by_their_length():
    """Of 5,000 words, 20 texts of 10 words have a million scores: 15,000 at once would be gigabytes for longer ones."""
    words, length, texts = 5_000, 10, 50
    block = DeviceRecords(
        torch.zeros(texts, length), torch.ones(texts, length, dtype=torch.int64), np.array([0, texts]),
        torch.ones(()), torch.zeros(()),
    )  # fmt: skip
    seen = []

    def scores(model, records, part):
        seen.append(len(records.y[part]))
        return torch.zeros(seen[-1], length, words)

    found = Evaluator([scores], target=Target("tokens", length)).evaluate(torch.zeros(1), block)
    assert seen == [1, 20, 20, 10]
    assert found.measures["perplexity"] == pytest.approx(words)


@pytest.mark.parametrize("at_once", [2, 3, 16])
def test_evaluation_on_threads_is_the_same_to_the_bit(monkeypatch, at_once):
    """Batches of five records, of which there are three, on as many threads as there are, and on more."""
    import h2fdp.training.device_records as evaluation

    monkeypatch.setattr(evaluation, "_VALUES_AT_ONCE", 5 * RECORDS.x[0].numel())
    start = torch.from_numpy(START).flatten()
    alone = evaluate(module(), start, RECORDS)
    with worker_threads(at_once) as threads:
        together = Evaluator([ModuleScores(module()) for _ in range(at_once)], threads=threads).evaluate(start, RECORDS)
    np.testing.assert_array_equal(together.by_device, alone.by_device)
    assert together.measures == alone.measures
