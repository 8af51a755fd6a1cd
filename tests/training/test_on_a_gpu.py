"""What a GPU asks for: nothing waits for it within a stretch of steps.

The first is tested without one: tensors of torch's `meta` device have no values, and whoever asks for one fails.
"""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import FedDyn
from h2fdp.arithmetic import run_arithmetic
from h2fdp.models.construct import build
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.local_steps import Descent, StepTerms
from h2fdp.training.stacked import _VALUES_IN_A_STACK, StackedEngine
from tests.training.groups import SHAPES, draw, evaluate, model_and_start, records

SIZES, RATES, WIDTH = np.array([40, 60, 35, 50, 9]), np.array([0.5, 0.2, 0.3, 0.2, 0.02]), 8
CLIPPINGS = {"none": None, "batch": Clipping(0.5, "batch"), "record": Clipping(0.5, "record", mean_too=True)}
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MODELS = ("softmax", "cnn12", "unknown")


def stretch(seed=1):
    """Some batches take several passes, some are empty, and devices stop early."""
    drawn = draw("poisson", SIZES, RATES, 3, seed)
    assert drawn.counts.max() > 2 * WIDTH
    assert drawn.counts.min() == 0
    return Batches(drawn.indices, drawn.counts, np.array([3, 3, 3, 1, 3]), RATES * SIZES + 0.5)


def train(engine, start, held, batches, terms=None):
    return engine.train(start.expand(5, -1), held, np.arange(5), batches, 0.1, terms or StepTerms(watched=True))


class Copies(TorchDispatchMode):
    """Counts what goes from the processor to the other device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        into = (kwargs or {}).get("device")
        self.count += function is torch.ops.aten._to_copy.default and into is not None and into.type == "meta"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "clipping"),
    [(name, each) for name in MODELS for each in CLIPPINGS if (name, each) != ("cnn12", "none")],
)
def test_no_step_asks_for_a_value(name, clipping, monkeypatch):
    monkeypatch.setitem(_VALUES_IN_A_STACK, "meta", 500_000_000)
    module, start = model_and_start(name)
    held = records(SHAPES[name], SIZES)
    there = held.to(torch.device("meta"))
    there.__dict__["_one_scale"] = (float(held.scale), there.shift)  # read once, before the first interval
    own = CLIPPINGS[clipping]
    with Copies() as copies:
        found = train(StackedEngine(module, own, Descent(Plain()), WIDTH), start.to("meta"), there, stretch())
    assert found.updates.device.type == "meta"
    assert 0 < copies.count <= 24, "a few for the stretch, and for the passes beyond the first"
    if clipping in ("none", "record"):
        corrected = StepTerms(corrections=torch.zeros(5, len(start), device="meta"))
        feddyn = StackedEngine(module, own, Descent(FedDyn()), WIDTH)
        assert train(feddyn, start.to("meta"), there, stretch(), corrected).updates.shape == (5, len(start))


@GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", MODELS)
def test_steps_agree_with_the_processor_and_nothing_waits(name, clipping):
    module, start = model_and_start(name)
    held = records(SHAPES[name], SIZES)
    here, there = (StackedEngine(module, CLIPPINGS[clipping], Descent(Plain()), WIDTH) for _ in range(2))
    on_gpu, started = held.to(torch.device("cuda")), start.cuda()
    for seed, warm in ((1, False), (1, True), (2, False)):
        with run_arithmetic():
            torch.cuda.set_sync_debug_mode("error" if warm else "default")
            try:
                found = train(there, started, on_gpu, stretch(seed)).updates
            finally:
                torch.cuda.set_sync_debug_mode("default")
            expected = train(here, start, held, stretch(seed)).updates
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-5)


@GPU
def test_an_evaluation_on_a_gpu_is_the_processors():
    module = build("cnn12", (1, 8, 8), 10, seed_key=5)
    _, start = model_and_start("cnn12")
    held = records((1, 8, 8), SIZES)
    here = evaluate(module, start, held)
    there = evaluate(module.cuda(), start.cuda(), held.to(torch.device("cuda")))
    np.testing.assert_allclose(there.by_device[1], here.by_device[1], rtol=1e-4)
    np.testing.assert_allclose(there.by_device[0], here.by_device[0], atol=1 / SIZES.min())
