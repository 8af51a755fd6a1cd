"""A device's update is the same to the bit whoever shares its call: equal seeds give equal results on any hosts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import Proximal
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.local_steps import Descent
from h2fdp.training.stacked import StackedEngine
from tests.training.groups import SHAPES, draw, model_and_start, records

CLIPPINGS = [None, Clipping(0.5, "batch"), Clipping(0.5, "record")]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def updates(name, clipping, sizes, batches, parts, width, objective=None):
    """(s, M) updates of all devices, those of each part in a call of their own."""
    module, start = model_and_start(name)
    held = records(SHAPES[name], sizes)
    engine = StackedEngine(module, clipping, Descent(objective or Plain()), width)
    found = torch.empty(len(sizes), len(start))
    for part in parts:
        rows = np.array(part)
        found[rows] = engine.train(start.expand(len(part), -1), held, rows, batches.part(rows), 0.1).updates
    return found


@pytest.mark.slow
@pytest.mark.parametrize("clipping", CLIPPINGS, ids=["none", "batch", "record"])
@pytest.mark.parametrize("name", SHAPES)
def test_any_split_of_a_models_devices_gives_the_same_bits(name, clipping):
    devices = 60 if name in ("softmax", "logistic", "double") else 5
    sizes = np.random.default_rng(2).integers(5, 40, devices)
    drawn = draw("poisson", sizes, np.full(devices, 0.25), 2)
    batches = Batches(drawn.indices, drawn.counts, 1 + np.arange(devices) % 2)
    whole = updates(name, clipping, sizes, batches, [range(devices)], 6)
    for size in (1, 3, 7, 25):
        if size < devices:
            parts = [range(first, min(first + size, devices)) for first in range(0, devices, size)]
            assert updates(name, clipping, sizes, batches, parts, 6).equal(whole), size
    backwards = [list(reversed(range(devices)))[:2], *([each] for each in range(devices - 2))]
    assert updates(name, clipping, sizes, batches, backwards, 6).equal(whole)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 80), min_size=2, max_size=30),
    st.integers(1, 48),
    st.floats(0.05, 0.9),
    st.sampled_from(CLIPPINGS),
    st.integers(0, 2**20),
)
def test_any_split_of_any_devices_gives_the_same_bits(sizes, width, rate, clipping, seed):
    random = np.random.default_rng(seed)
    drawn = draw("poisson", sizes, np.full(len(sizes), rate), 3, seed)
    batches = Batches(drawn.indices, drawn.counts, random.integers(0, 4, len(sizes)))
    cuts = np.flatnonzero(random.random(len(sizes) - 1) < 0.4) + 1
    parts = np.split(random.permutation(len(sizes)), cuts)
    objective = Proximal(mu=0.3)
    whole = updates("logistic", clipping, sizes, batches, [range(len(sizes))], width, objective)
    assert updates("logistic", clipping, sizes, batches, parts, width, objective).equal(whole)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 7), (3, 11, 5)])
@pytest.mark.parametrize("width", [1, 3, 32, 44])
def test_odd_shapes_give_the_same_bits_in_stacks_of_every_size(shape, width):
    from h2fdp.models.construct import ParameterLayout, build
    from h2fdp.training.gradients import gradient_rule

    module = build("logistic", shape, 10, seed_key=1)
    generator = torch.Generator().manual_seed(0)
    models = ParameterLayout(module).to_vector(module) + 0.1 * torch.randn(
        60, ParameterLayout(module).size, generator=generator
    )
    x, y = torch.randn(60, width, *shape, generator=generator), torch.randint(0, 10, (60, width), generator=generator)
    shares = torch.full((60, width), 1 / width)
    for clipping in (None, Clipping(0.5, "record")):
        rule = gradient_rule(module, clipping)
        whole = rule.sums(models, x, y, shares)
        for stack in (2, 3, 5, 8, 16, 31, 59):
            part = slice(60 - stack, 60)
            assert rule.sums(models[part], x[part], y[part], shares[part]).equal(whole[part]), stack
