"""The stacked engine against the reference: every model, clipping, sampling and objective, whatever the batches are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import Proximal
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import build_engine
from h2fdp.training.gradients import is_layered
from h2fdp.training.local_steps import Descent
from h2fdp.training.stacked import PaddedBatches, StackedEngine
from tests.training.groups import SHAPES, draw, model_and_start, records

SIZES = np.array([30, 9, 60, 14, 33])
RATES = np.array([0.3, 0.4, 0.2, 0.05, 0.3])  # batches of 9, 3.6, 12, 0.7 and 9.9: empty ones, and ones of three passes
WIDTH = 5
CLIPPINGS = {
    "none": None,
    "batch": Clipping(0.5, "batch"),
    "record": Clipping(0.5, "record"),
    "normalized": Clipping(0.5, "record", gamma=0.1),
}
POOLED = ("cnn12", "ali-cnn-28", "ali-cnn-32")


def both(name, clipping, objective, batches, sizes=SIZES, width=WIDTH, step_size=0.1, data_seed=0):
    """Updates of the loop and of the stacked engine, each device from a start of its own."""
    module, start = model_and_start(name)
    held = records(SHAPES[name], sizes, data_seed)
    starts = start + 0.01 * torch.randn(len(sizes), len(start), generator=torch.Generator().manual_seed(1))
    rows = np.arange(len(sizes))
    return [
        build_engine(engine, module, clipping, Descent(objective), width)
        .train(starts, held, rows, batches, step_size)
        .updates
        for engine in ("loop", "stacked")
    ]


def assert_close(found, expected, pooled=False):
    """Within 1e-5 of each device's update. Where two inputs of a max pool are equal but for rounding, each engine may
    follow another one: that is allowed to one device, and moves its update by little."""
    lengths = expected.norm(dim=1)
    errors = ((found - expected).norm(dim=1) / lengths.clamp(min=1e-30)).sort().values
    assert errors[-1] < (1e-2 if pooled else 1e-5)
    assert errors[: len(errors) - pooled].max() < 1e-5


WAYS = {"fixed": Plain(), "poisson": Proximal(mu=0.3)}
CASES = [
    (name, clipping, sampling)
    for name in SHAPES
    for place, clipping in enumerate(CLIPPINGS)
    for number, sampling in enumerate(WAYS)
    if name not in POOLED or number == place % 2  # they take ten times as long
]


@pytest.mark.parametrize(("name", "clipping", "sampling"), CASES)
def test_every_combination_is_the_loops_within_rounding(name, clipping, sampling):
    devices = np.arange(1, 4)
    batches = draw(sampling, SIZES, RATES, 2).part(devices)
    expected, found = both(name, CLIPPINGS[clipping], WAYS[sampling], batches, SIZES[devices])
    assert batches.counts.max() > 2 * WIDTH, "some batches need a third pass"
    assert sampling == "fixed" or batches.counts.min() == 0, "some batches are empty"
    assert_close(found, expected, pooled=name in POOLED)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    rate=st.floats(0.02, 1.0),
    width=st.integers(1, 24),
    steps=st.integers(1, 3),
    clipping=st.sampled_from(list(CLIPPINGS)),
    seed=st.integers(0, 2**20),
    data=st.data(),
)
def test_any_sizes_rates_widths_and_stragglers(sizes, rate, width, steps, clipping, seed, data):
    drawn = draw("poisson", sizes, np.full(len(sizes), rate), steps, seed)
    done = data.draw(st.lists(st.integers(0, steps), min_size=len(sizes), max_size=len(sizes)))
    batches = Batches(drawn.indices, drawn.counts, np.array(done))
    expected, found = both("logistic", CLIPPINGS[clipping], Proximal(mu=0.2), batches, np.array(sizes), width)
    assert_close(found, expected)


@pytest.mark.parametrize("scaling", ["one", "of each value", "moved alone"])
@pytest.mark.parametrize("name", ["softmax", "cnn12", "unknown"])
@pytest.mark.parametrize("clipping", [None, Clipping(0.5, "record")])
def test_whole_devices_read_from_where_they_lie_have_the_bits_of_gathered_ones(monkeypatch, name, clipping, scaling):
    """Devices of unequal sizes, not next to each other, in passes that they do not fill."""
    module, start = model_and_start(name)
    held = records(SHAPES[name], SIZES)
    if scaling != "one":
        shift = torch.linspace(-1, 1, held.x[0].numel()).view(held.x.shape[1:])
        scale = torch.ones(()) if scaling == "moved alone" else 1.5 - shift
        x = held.x.float() / 128 if scaling == "moved alone" else held.x
        held = replace(held, x=x, scale=scale, shift=shift)
    rows = np.array([0, 2, 4])
    batches = draw("poisson", SIZES[rows], np.ones(3), 2)
    engine = build_engine("stacked", module, clipping, Descent(Plain()), WIDTH)
    stored = held.x.clone()

    def updates():
        return engine.train(start.expand(3, -1), held, rows, batches, 0.1).updates

    gathered = []
    monkeypatch.setattr(
        DeviceRecords,
        "scaled",
        lambda self, x, out=None, by=DeviceRecords.scaled: gathered.append(len(x)) or by(self, x, out),
    )
    found = updates()
    assert WIDTH in gathered, "one device at a time"
    begun = PaddedBatches.__init__

    def never_whole(self, *args, **named):
        begun(self, *args, **named)
        self._whole[:] = False

    monkeypatch.setattr(PaddedBatches, "__init__", never_whole)
    gathered.clear()
    assert torch.equal(found, updates())
    assert min(gathered) > WIDTH, "the devices of a stack together"
    assert torch.equal(stored, held.x), "records stay as they are"


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_straggler_stops_after_its_steps_and_so_does_the_pull(engine):
    module, start = model_and_start("softmax")
    held, rows = records(SHAPES["softmax"], SIZES), np.arange(5)
    whole = draw("poisson", SIZES, RATES, 4)
    made = build_engine(engine, module, None, Descent(Proximal(mu=0.5)), WIDTH)
    steps = np.array([4, 0, 2, 1, 3])
    found = made.train(start.expand(5, -1), held, rows, Batches(whole.indices, whole.counts, steps), 0.1).updates
    for device, count in enumerate(steps):
        own = np.array([device])
        short = Batches(whole.indices[:count, own], whole.counts[:count, own])
        assert found[device].equal(made.train(start[None], held, own, short, 0.1).updates[0])
    assert not found[1].any()


@pytest.mark.parametrize("name", ["softmax", "unknown"])
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_an_empty_batch_has_no_gradient_but_the_objectives_step_happens(name, clipping):
    """From a start of its own the pull has nothing to pull; after a first step it has, and acts alone."""
    module, start = model_and_start(name)
    indices = np.zeros((2, 2, 3), dtype=np.int64)
    batches = Batches(indices, np.array([[2, 0], [0, 0]]))
    made = StackedEngine(module, CLIPPINGS[clipping], Descent(Proximal(mu=0.5)), WIDTH)
    held = records(SHAPES[name], SIZES)
    first = made.train(start.expand(2, -1), held, np.arange(2), Batches(indices[:1], batches.counts[:1]), 0.1).updates
    found = made.train(start.expand(2, -1), held, np.arange(2), batches, 0.1).updates
    torch.testing.assert_close(found[0], first[0] * (1 - 0.1 * 0.5), rtol=1e-4, atol=1e-7)
    assert not found[1].any()


@pytest.mark.parametrize("name", SHAPES)
def test_one_record_with_a_huge_gradient_moves_an_update_by_at_most_its_share(name):
    """Clipped, no record moves a step by more than eta G / drawn, from wherever the others take it."""
    module, start = model_and_start(name)
    held = records(SHAPES[name], [12])
    large = held.x.to(torch.float32)
    large[3] *= 1e6
    held = type(held)(large, held.y, held.offsets, held.scale, held.shift)
    made = StackedEngine(module, Clipping(0.5, "record"), Descent(Plain()), WIDTH)

    def update(indices):
        return made.train(
            start[None], held, np.array([0]), Batches(np.array([[indices]]), np.array([[8]])), 0.1
        ).updates

    others = [0, 1, 2, 4, 5, 6, 7]
    with_large, with_another = update([3, *others]), update([8, *others])
    assert (with_large - with_another).norm() <= 2 * 0.1 * 0.5 / 8 * (1 + 1e-4)
    assert with_large.norm() <= 0.1 * 0.5 * (1 + 1e-4)


@pytest.mark.parametrize("name", ["softmax", "mlp", "own", "unknown"])
@pytest.mark.parametrize("scope", ["batch", "record"])
def test_what_is_not_finite_never_gets_out_under_clipping(name, scope):
    module, start = model_and_start(name)
    held = records(SHAPES[name], [12, 12])
    broken = held.x.to(torch.float32)
    broken[3, 0, 2], broken[4, 0, 1] = float("inf"), float("nan")
    held = type(held)(broken, held.y, held.offsets, held.scale, held.shift)
    batches = Batches(np.array([[[3, 4, 5], [3, 4, 5]]]), np.array([[3, 3]]))
    found, expected = (
        build_engine(engine, module, Clipping(0.5, scope), Descent(Plain()), WIDTH)
        .train(start.expand(2, -1), held, np.arange(2), batches, 0.1)
        .updates
        for engine in ("stacked", "loop")
    )
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 2)),
        nn.Sequential(*[nn.Linear(4, 4)] * 2),
    ],
    ids=["groups", "circular", "prelu", "tied"],
)
def test_what_is_no_chain_of_known_layers_is_left_to_torch(module):
    assert not is_layered(module)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_gpu_agrees_with_the_reference(name, clipping, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    module, start = model_and_start(name)
    held, batches, rows = records(SHAPES[name], SIZES), draw("poisson", SIZES, RATES, 3), np.arange(5)
    expected = (
        build_engine("loop", module, CLIPPINGS[clipping], Descent(Plain()))
        .train(start.expand(5, -1), held, rows, batches, 0.1)
        .updates
    )
    there = type(held)(held.x.cuda(), held.y.cuda(), held.offsets, held.scale.cuda(), held.shift.cuda())
    made = StackedEngine(module, CLIPPINGS[clipping], Descent(Plain()), WIDTH)
    found = made.train(start.cuda().expand(5, -1), there, rows, batches, 0.1).updates.cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
