"""Clipped records in stacks of one and of several devices, against autograd in double precision, one by one."""

from copy import deepcopy
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.models.construct import ParameterLayout
from h2fdp.training import stacked
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import Descent
from tests.training.groups import records

PAIRS = st.tuples(st.integers(1, 2), st.integers(1, 2))
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.SiLU, nn.Identity)


@st.composite
def chains(draw):
    """A chain of two convolutions, perhaps group norms and pools, a linear layer over positions or over everything."""
    channels, sides = draw(st.integers(1, 3)), (draw(st.integers(6, 9)), draw(st.integers(6, 9)))
    layers, into = [], channels
    for kernel in (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), (3, 2)):
        wide = draw(st.sampled_from([2, 4, 18]))  # many channels at few positions: norms by Gram matrices
        padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) if kernel != (3, 2) else (1, 1)
        layers.append(nn.Conv2d(into, wide, kernel, draw(PAIRS), padding, bias=draw(st.booleans())))
        normed = draw(st.booleans())
        if normed and nn.Sequential(*layers)(torch.zeros(1, channels, *sides))[0, 0].numel() > 1:
            # Not 1e-5: a group of nearly equal numbers is divided by its root, and so are all roundings before.
            layers.append(nn.GroupNorm(draw(st.sampled_from([1, 2])), wide, eps=0.1))
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
        if draw(st.booleans()):
            left = nn.Sequential(*layers)(torch.zeros(1, channels, *sides)).shape[2:]
            layers.append(nn.MaxPool2d(draw(st.integers(1, min(2, *left))), stride=draw(PAIRS)))
        into = wide
    shape = nn.Sequential(*layers)(torch.zeros(1, channels, *sides)).shape
    if draw(st.booleans()):
        layers += [nn.Flatten(2), nn.Linear(shape[2] * shape[3], 3, bias=draw(st.booleans())), nn.Flatten()]
        last = shape[1] * 3
    else:
        layers.append(nn.Flatten())
        last = shape[1] * shape[2] * shape[3]
    return nn.Sequential(*layers, nn.Linear(last, 10)), (channels, *sides)


def one_by_one(module, held):
    """(records, M) float64: each record's gradient by itself."""
    module = deepcopy(module).double()
    x, y = held.gather(np.arange(len(held.y)))
    rows = []
    for record, label in zip(x.double(), y, strict=True):
        loss = nn.functional.cross_entropy(module(record[None]), label[None])
        rows.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows)


@settings(max_examples=15, deadline=None)
@given(chains(), st.sampled_from([0.5, 1.001, 2.0]), st.sampled_from([0.0, 0.5]), st.booleans(), st.integers(0, 99))
def test_a_step_follows_clipped_gradients_and_no_record_moves_it_further_than_its_bound(
    chain, share, momentum, alone, seed
):
    module, shape = chain
    torch.manual_seed(seed)
    for held in module.parameters():
        nn.init.normal_(held, std=0.5)
    held = records(shape, np.array([5]), seed)
    gradients = one_by_one(module, held)
    norms = gradients.norm(dim=1)
    bound = max(share * float(norms.median()), 1e-3)  # of the five, some are cut and some are not where share is 1.001
    # With momentum, whose first step is the same, the gradient is wanted as a vector.
    engine = build_engine("stacked", module, Clipping(bound, "record"), Descent(Plain(), momentum))
    # A batch of all, each record alone, and nobody; divided by 2.5.
    drawn = [np.arange(5), *np.arange(5)[:, None], np.arange(0)]
    indices = np.array([[np.resize(each, 5) if len(each) else np.zeros(5, int) for each in drawn]])
    batches = Batches(indices, np.array([[len(each) for each in drawn]]), None, np.full(len(drawn), 2.5))
    start = ParameterLayout(module).to_vector(module)
    with patch.dict(stacked._VALUES_IN_A_STACK, cpu=1 if alone else 10**6):
        found = engine.train(start.expand(len(drawn), -1), held, np.zeros(len(drawn), int), batches, 2.5).updates
    clipped = gradients * (bound / norms.clamp(min=bound))[:, None]
    expected = torch.cat([clipped.sum(dim=0, keepdim=True), clipped, torch.zeros(1, len(start))])
    lengths = torch.cat([clipped.norm(dim=1).sum()[None], clipped.norm(dim=1), torch.zeros(1)])
    # Of the model that moves, and of probabilities near 1, whose distance from it is what a record has to say.
    rounding = 2.0**-23 * start.norm() + 2e-6 * norms.max()
    assert ((found - expected).norm(dim=1) <= 2e-4 * lengths + rounding).all()
    assert (found[1:6].double().norm(dim=1) <= bound * (1 + 2e-6) + 2.0**-23 * start.norm()).all()
    assert not found[6].any()


@pytest.mark.parametrize("alone", [False, True])
def test_several_passes_over_a_batch_clip_as_one_does_and_broken_records_count_for_nothing(alone, monkeypatch):
    monkeypatch.setitem(stacked._VALUES_IN_A_STACK, "cpu", 1 if alone else 10**6)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    held = records((2, 6, 6), np.array([11]))
    broken = held.x.float()
    broken[3, 0, 2, 1], broken[7, 1, 1, 1] = float("inf"), float("nan")
    held = type(held)(broken, held.y, held.offsets, held.scale, held.shift)
    start = ParameterLayout(module).to_vector(module)

    def step(drawn, width=32):
        engine = build_engine("stacked", module, Clipping(0.7, "record"), Descent(Plain()), width)
        batches = Batches(np.array(drawn)[None, None], np.array([[len(drawn)]]), None, np.array([11.0]))
        return engine.train(start[None], held, np.arange(1), batches, 0.1).updates[0]

    once = step(range(11))
    torch.testing.assert_close(once, step([each for each in range(11) if each not in (3, 7)]), rtol=1e-4, atol=1e-7)
    assert once.norm() > 1e-3
    torch.testing.assert_close(step(range(11), width=2), once, rtol=1e-4, atol=1e-7)
