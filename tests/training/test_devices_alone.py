"""Large models, of which a stack holds one device, against the reference; their bits for every split."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.algorithms import OBJECTIVES
from h2fdp.algorithms.fedavg import Plain
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.training import stacked
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import Descent, OwnModels, StepTerms
from h2fdp.training.losses import CROSS_ENTROPY, Hinge
from tests.training.groups import KnownNoise, draw, own_chain, records

SHAPE, SIZES, RATES = (1, 8, 8), np.array([30, 9, 14]), np.array([0.4, 0.4, 0.05])
CLIPPINGS = {
    "none": None,
    "batch": Clipping(0.5, "batch"),
    "record": Clipping(0.5, "record"),
    "normalised": Clipping(0.5, "record", gamma=0.1),
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setitem(stacked._VALUES_IN_A_STACK, "cpu", 1)


def pooled():
    """A pool after a rectifier, one after tanh, a rectifier on what is kept, probabilities at the end."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.ReLU(),
        nn.Linear(24, 10),
        nn.Softmax(dim=1),
    )


MODELS = {"pooled": pooled, "own": own_chain, "cnn12": lambda: build("cnn12", SHAPE, 10, seed_key=5)}


def both(name, clipping, objective, batches, *, momentum=0.0, loss=CROSS_ENTROPY, terms=None, width=8):
    """What the loop and the stacked engine give, each device from a start of its own."""
    torch.manual_seed(2)
    module = MODELS[name]()
    start = ParameterLayout(module).to_vector(module)
    starts = start + 0.01 * torch.randn(3, len(start), generator=torch.Generator().manual_seed(1))
    given = starts, records(SHAPE, SIZES), np.arange(3), batches, 0.1, StepTerms() if terms is None else terms(starts)
    return [
        build_engine(engine, module, clipping, Descent(objective, momentum), width, loss).train(*given)
        for engine in ("loop", "stacked")
    ]


def assert_alike(expected, found):
    """Within 1e-5 of each device's own."""
    for name in ("updates", "personal", "last_steps"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            a, b = (each.view(len(each), -1) for each in (a, b))
            assert ((a - b).norm(dim=1) <= 1e-5 * b.norm(dim=1) + 1e-8).all(), name


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_and_clipping_is_the_loops(name, clipping):
    batches = draw("poisson", SIZES, RATES, 2)
    assert batches.counts.min() == 0, "some batches are empty"
    assert_alike(*both(name, CLIPPINGS[clipping], Plain(), batches))


OF_OBJECTIVES = {
    "proximal": {"mu": 0.3},
    "scaffold": {},
    "pfedme": {"penalty": 2.0, "inner_step_size": 0.05},
    "mean-regularised": {"penalty": 0.3},
    "personal-head": {},
}


@pytest.mark.parametrize("name", sorted(OF_OBJECTIVES.keys() & OBJECTIVES.models))
def test_objectives_momentum_noise_stragglers_and_divisors_are_the_loops(name):
    objective = OBJECTIVES.models[name](**OF_OBJECTIVES[name])
    drawn = draw("poisson", SIZES, RATES, 3)
    batches = Batches(drawn.indices, drawn.counts, np.array([3, 0, 2]), RATES * SIZES + 0.5)

    def terms(starts):
        remembers = name == "scaffold" or isinstance(objective, OwnModels)
        noise = None if name == "pfedme" else KnownNoise(np.arange(3))  # which is for one gradient
        return StepTerms(0.1 * torch.ones_like(starts) if remembers else None, noise, watched=True)

    assert_alike(*both("pooled", CLIPPINGS["batch"], objective, batches, momentum=0.5, loss=Hinge(), terms=terms))


@pytest.mark.parametrize("clipping", ["none", "batch", "record"])
def test_any_split_gives_the_same_bits(clipping):
    module = MODELS["cnn12"]()
    held, batches = records(SHAPE, SIZES), draw("poisson", SIZES, RATES, 2)
    starts = ParameterLayout(module).to_vector(module).expand(3, -1)
    before = starts.clone()

    def of(rows):
        made = build_engine("stacked", module, CLIPPINGS[clipping], Descent(Plain()))
        return made.train(starts[rows], held, rows, batches.part(rows), 0.1).updates

    whole = of(np.arange(3))
    assert starts.equal(before), "a start that is shared is not changed"
    for rows in (np.array([2, 0]), np.array([1])):
        assert of(rows).equal(whole[rows])


@pytest.mark.parametrize("clipping", ["batch", "record"])
def test_what_is_not_finite_never_gets_out_under_clipping(clipping):
    held = records(SHAPE, SIZES)
    broken = held.x.float()
    broken[3, 0, 2, 1], broken[4, 0, 1, 1] = float("inf"), float("nan")
    held = type(held)(broken, held.y, held.offsets, held.scale, held.shift)
    module = MODELS["own"]()
    start = ParameterLayout(module).to_vector(module)
    made = build_engine("stacked", module, CLIPPINGS[clipping], Descent(Plain()))
    batches = Batches(np.array([[[3, 4, 5]]]), np.array([[3]]))
    assert made.train(start[None], held, np.arange(1), batches, 0.1).updates.isfinite().all()
