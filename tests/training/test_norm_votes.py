"""Votes about a clip norm: engines count alike, whatever the model, the passes and the stacks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

from h2fdp.algorithms.fedavg import Plain
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import StepTerms
from h2fdp.training.stacked import PaddedBatches, StackedEngine
from tests.training.groups import SHAPES, draw, model_and_start, records

SIZES = np.array([30, 9, 60, 14, 33])
RATES = np.array([0.3, 0.4, 0.2, 0.05, 0.3])  # batches of 9, 3.6, 12, 0.7 and 9.9: empty ones, and ones of three passes
STEPS, WIDTH, STEP_SIZE = np.array([2, 1, 2, 2, 1]), 5, 1e-3


def trained(engine, clipping, terms, rows=slice(None)):
    name, held = engine
    module, start = model_and_start(name[1])
    made = build_engine(name[0], module, clipping, Plain(), WIDTH)
    chosen = np.arange(len(SIZES))[rows]
    batches = batches_of(chosen)
    return made.train(start.expand(len(chosen), -1), held, chosen, batches, STEP_SIZE, terms)


def batches_of(chosen):
    drawn = draw("poisson", SIZES, RATES, 2)
    assert drawn.counts.max() > 2 * WIDTH, "some batches need a third pass"
    assert drawn.counts.min() == 0, "some batches are empty"
    return replace(drawn.part(chosen), steps=STEPS[chosen])


@pytest.mark.parametrize("name", ["softmax", "mlp", "cnn12", "unknown"])
def test_engines_count_the_drawn_records_within_the_norm(name):
    """By hand at the first model, which such small steps hardly leave; the norm lies between two records'."""
    module, start = model_and_start(name)
    held = records(SHAPES[name], SIZES)
    layout = ParameterLayout(module)

    def loss(vector, x, y):
        scores = functional_call(module, layout.views(vector), (x[None],))
        return torch.nn.functional.cross_entropy(scores, y[None])

    x, y = held.gather(np.arange(SIZES.sum()))
    lengths = vmap(grad(loss), in_dims=(None, 0, 0))(start, x, y).norm(dim=1).numpy()
    ordered = np.sort(lengths)
    middle = len(ordered) // 2
    place = middle - 10 + int(np.argmax(np.diff(ordered[middle - 10 : middle + 10])))
    norm = float(ordered[place : place + 2].mean())
    batches = batches_of(np.arange(len(SIZES)))
    expected = [
        sum(
            float(np.sum(np.where(lengths[batches.of(slot, device) + held.offsets[device]] <= norm, 0.5, -0.5)))
            for slot in range(STEPS[device])
        )
        for device in range(len(SIZES))
    ]
    for engine in ("loop", "stacked"):
        found = trained(((engine, name), held), Clipping(0.1, "record", True, moves=True), StepTerms(clip_norm=norm))
        np.testing.assert_array_equal(found.votes, expected)
        fixed = trained(((engine, name), held), Clipping(norm, "record", True), StepTerms())
        assert fixed.votes is None
        assert found.updates.equal(fixed.updates), "counting changes no bit, and the norm of the terms is the norm"


def test_no_vote_depends_on_who_shares_the_stack(monkeypatch):
    held = records(SHAPES["softmax"], SIZES)
    terms = StepTerms(clip_norm=20.0)
    whole = trained((("stacked", "softmax"), held), Clipping(0.1, "record", moves=True), terms).votes
    assert len(set(whole.tolist())) > 2
    for rows in (slice(0, 1), slice(1, 3), slice(2, 5)):
        part = trained((("stacked", "softmax"), held), Clipping(0.1, "record", moves=True), terms, rows).votes
        assert part.equal(whole[rows])
    monkeypatch.setattr(StackedEngine, "_passes", lambda self, size, *rest: _narrow(self, *rest))
    assert trained((("stacked", "softmax"), held), Clipping(0.1, "record", moves=True), terms).votes.equal(whole)


def _narrow(engine, held, rows, batches):
    return PaddedBatches(held, rows, batches, 2)
