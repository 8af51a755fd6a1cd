"""Local steps with convolutions in bfloat16: how far they are from 32 bits; no record exceeds its bound."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import Engines, ThreadLocalEngine, TrainingJob, build_engine, engine_of_run
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY
from tests.training.groups import records

SHAPE, SIZES = (1, 8, 8), np.array([30, 9, 14])
CLIPPINGS = {"none": None, "batch": Clipping(0.5, "batch"), "record": Clipping(0.5, "record")}


def convolutional():
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3)]
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(32, 10))


def update(precision, clipping, module, batches, held):
    start = ParameterLayout(module).to_vector(module)
    engine = build_engine("stacked", module, clipping, Descent(Plain()), precision=precision)
    return engine.train(start[None], held, np.arange(1), batches, 0.1).updates[0]


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_it_is_autocasts_rounding_and_not_more(clipping):
    """Beside 32 bits: at most twice as far from it as PyTorch's own bfloat16 is."""
    torch.manual_seed(3)
    module, held = convolutional(), records(SHAPE, SIZES[:1])
    batches = Batches(np.arange(30)[None, None], np.array([[30]]))
    found = update("bfloat16", CLIPPINGS[clipping], module, batches, held)
    exact = update("float32", CLIPPINGS[clipping], module, batches, held)
    x, y = held.gather(np.arange(30))
    gradients = []
    for record in range(30):  # PyTorch's own, clipped in the same way
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(module(x[record : record + 1]).float(), y[record : record + 1])
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    each = torch.stack(gradients)
    if clipping == "record":
        each = each * (0.5 / each.norm(dim=1).clamp(min=0.5))[:, None]
    mean = each.mean(dim=0)
    if clipping == "batch":
        mean = mean * min(1.0, 0.5 / float(mean.norm()))
    own, autocasts = (float((each - exact).norm() / exact.norm()) for each in (found, 0.1 * mean))
    assert 1e-4 < own <= 2 * autocasts < 0.1


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.3, 1.0]))
def test_no_record_moves_a_step_further_than_its_bound(seed, bound):
    torch.manual_seed(seed)
    module, held = convolutional(), records(SHAPE, np.array([4]), seed % 100)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    start = ParameterLayout(module).to_vector(module)
    engine = build_engine("stacked", module, Clipping(bound, "record"), Descent(Plain(), 0.5), precision="bfloat16")
    batches = Batches(np.arange(4)[None, :, None], np.ones((1, 4), int), None, np.ones(4))
    moved = engine.train(start.expand(4, -1), held, np.zeros(4, int), batches, 1.0).updates.double().norm(dim=1)
    assert (moved <= bound * (1 + 2e-6) + 2.0**-23 * start.norm()).all()
    assert moved.max() > 0.9 * bound, "some record is cut"


def job(precision, objective=None):
    return TrainingJob(Descent(objective or Plain()), CROSS_ENTROPY, None, SHAPE, 1e12, 32, precision)


@pytest.mark.parametrize(
    ("engine", "module", "device", "key", "text"),
    [
        ("compiled", nn.Linear(64, 10), "cpu", "runtime.engine", "compiled knows float32 alone"),
        ("loop", nn.Linear(64, 10), "cpu", "runtime.engine", "expected auto or stacked"),
        ("auto", nn.Bilinear(4, 4, 2), "cpu", "training.precision", "what rounds are chains"),
        ("auto", nn.Linear(64, 10), "cuda", "training.precision", "requests a GPU"),
        ("auto", nn.Linear(64, 10), "cpu", "training.precision", "this model has none"),
    ],
)
def test_what_cannot_round_is_refused_with_the_reason(engine, module, device, key, text):
    with pytest.raises(UserError, match=text) as caught:
        engine_of_run(engine, module, torch.device(device), job("bfloat16"))
    assert str(caught.value).startswith(f"{key}: ")


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_torchs_default_type_changes_no_bit_of_an_engine_that_is_built(engine, clipping):
    """A library that loads a model in 16 bits sets it for all threads, also for those that compute."""
    module, held = convolutional(), records(SHAPE, SIZES)
    start = ParameterLayout(module).to_vector(module).expand(3, -1)
    batches = Batches(np.tile(np.arange(9), (2, 3, 1)), np.full((2, 3), 9))

    def updates():
        built = build_engine(engine, module, CLIPPINGS[clipping], Descent(Plain(), momentum=0.5))
        torch.set_default_dtype(torch.bfloat16)
        try:
            return built.train(start, held, np.arange(3), batches, 0.1).updates
        finally:
            torch.set_default_dtype(torch.float32)

    wanted = build_engine(engine, module, CLIPPINGS[clipping], Descent(Plain(), momentum=0.5))
    assert torch.equal(updates(), wanted.train(start, held, np.arange(3), batches, 0.1).updates)


def test_the_engines_of_all_threads_are_built_before_one_of_them_computes():
    built, both = [], Barrier(2, timeout=60)

    class Engine:
        def train(self):
            both.wait()  # so that each thread takes one
            return len(built)

    def build():
        built.append(Engine())
        return built[-1]

    engine = ThreadLocalEngine(Engines(build, 2))
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda _: engine.train(), range(2))) == [2, 2]
    both.abort()
    with pytest.raises(BrokenBarrierError):
        engine.train()  # a third thread's
    assert len(built) == 3
