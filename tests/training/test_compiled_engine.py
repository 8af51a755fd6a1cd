"""The compiled engine against the reference, feature by feature; its bits for every split; what it refuses."""

import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import FedDyn, Proximal
from h2fdp.algorithms.scaffold import Scaffold
from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.compiled import kernels
from h2fdp.training.device_records import DeviceRecords, Evaluator, ModuleScores
from h2fdp.training.engine import build_engine, build_scores, compile_ahead
from h2fdp.training.local_steps import Descent, StepTerms
from h2fdp.training.losses import CROSS_ENTROPY, LabelSmoothing
from tests.training.groups import KnownNoise, draw, records

CLIPPINGS = {
    "none": None,
    "batch": Clipping(0.5, "batch"),
    "record": Clipping(0.5, "record"),
    "mean too": Clipping(0.5, "record", mean_too=True),
}
OBJECTIVES = {"plain": Plain(), "proximal": Proximal(mu=0.3), "scaffold": Scaffold(), "feddyn": FedDyn(alpha=0.2)}
SHAPE, CLASSES = (3, 5), 7  # of 15 features, which fill no register of any processor
MODELS = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 7, bias=False)),
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 7)),
    "double": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 7), nn.Softmax(dim=1)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 37), nn.ReLU(), nn.Linear(37, 7)),
    "deep": lambda: nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(15, 18, bias=False), nn.ReLU()), nn.Linear(18, 11), nn.Linear(11, 7)
    ),
}
SIZES, RATES = np.array([30, 9, 60, 14, 33]), np.array([0.3, 0.4, 0.25, 0.05, 0.3])


def model_and_starts(name, devices):
    torch.manual_seed(3)
    module = MODELS[name]()
    start = ParameterLayout(module).to_vector(module)
    return module, start + 0.02 * torch.randn(devices, len(start), generator=torch.Generator().manual_seed(4))


def terms_for(objective, starts, noisy=False, watched=False):
    """Corrections of those that have some."""
    corrections = None
    if isinstance(objective, (Scaffold, FedDyn)):
        corrections = 0.1 * torch.randn(starts.shape, generator=torch.Generator().manual_seed(5))
        corrections[1] = 0.0
    return StepTerms(corrections, KnownNoise(np.arange(len(starts))) if noisy else None, watched)


def trained(engine, name, clipping, objective, batches, *, terms=None, momentum=0.0, loss=CROSS_ENTROPY, held=None):
    devices = batches.counts.shape[1]
    module, starts = model_and_starts(name, devices)
    made = build_engine(engine, module, clipping, Descent(objective, momentum), 8, loss)
    held = records(SHAPE, SIZES) if held is None else held
    labels = held.y % CLASSES
    held = DeviceRecords(held.x, labels, held.offsets, held.scale, held.shift)
    given_terms = terms_for(objective, starts) if terms is None else terms(starts)
    return made.train(starts, held, np.arange(devices), batches, 0.1, given_terms)


def assert_alike(found, expected):
    """Within 1e-5 of each device's own."""
    for name in ("updates", "personal", "last_steps"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert ((a - b).norm(dim=1) <= 1e-5 * b.norm(dim=1) + 1e-7).all(), name


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    rate=st.floats(0.02, 1.0),
    steps=st.integers(1, 4),
    name=st.sampled_from(list(MODELS)),
    clipping=st.sampled_from(list(CLIPPINGS)),
    objective=st.sampled_from(list(OBJECTIVES)),
    momentum=st.sampled_from([0.0, 0.6]),
    noisy=st.booleans(),
    watched=st.booleans(),
    by_expected=st.booleans(),
    seed=st.integers(0, 2**20),
    data=st.data(),
)
def test_any_sizes_stragglers_momentum_noise_and_divisors(
    sizes, rate, steps, name, clipping, objective, momentum, noisy, watched, by_expected, seed, data
):
    drawn = draw("poisson", sizes, np.full(len(sizes), rate), steps, seed)
    done = np.array(data.draw(st.lists(st.integers(0, steps), min_size=len(sizes), max_size=len(sizes))))
    expected_sizes = rate * np.array(sizes) + 0.5 if by_expected else None
    batches = Batches(drawn.indices, drawn.counts, done, expected_sizes)

    def run(engine):
        chosen = OBJECTIVES[objective]

        def terms(starts):
            corrections = None
            if isinstance(chosen, (Scaffold, FedDyn)):
                corrections = 0.1 * torch.randn(starts.shape, generator=torch.Generator().manual_seed(seed))
            return StepTerms(corrections, KnownNoise(np.arange(len(starts))) if noisy else None, watched)

        held = records(SHAPE, sizes, seed)
        return trained(engine, name, CLIPPINGS[clipping], chosen, batches, terms=terms, momentum=momentum, held=held)

    assert_alike(run("compiled"), run("loop"))


@pytest.mark.parametrize("stored", ["bytes", "float32"])
@pytest.mark.parametrize("scaling", ["one", "each", "mixed"])
def test_records_are_scaled_as_they_are_stored(stored, scaling):
    held = records(SHAPE, SIZES)
    random = torch.Generator().manual_seed(6)
    scale = torch.tensor(1 / 64) if scaling == "one" else torch.rand(SHAPE, generator=random) / 64
    shift = torch.tensor(-0.7) if scaling != "each" else torch.rand(5, generator=random)
    x = held.x if stored == "bytes" else held.x.float() * 0.37
    held = DeviceRecords(x, held.y, held.offsets, scale, shift)
    batches = draw("poisson", SIZES, RATES, 3)
    found, expected = (
        trained(engine, "logistic", CLIPPINGS["record"], Plain(), batches, held=held) for engine in ("compiled", "loop")
    )
    assert_alike(found, expected)


@pytest.mark.parametrize("clipping", ["batch", "record", "mean too"])
@pytest.mark.parametrize("name", ["softmax", "mlp", "deep"])
def test_what_is_not_finite_never_gets_out_under_clipping(name, clipping):
    held = records(SHAPE, [12, 12])
    broken = held.x.float()
    broken[3, 0, 2], broken[4, 0, 1] = float("inf"), float("nan")
    held = DeviceRecords(broken, held.y, held.offsets, held.scale, held.shift)
    batches = Batches(np.array([[[3, 4, 5], [3, 4, 5]]]), np.array([[3, 3]]))
    found, expected = (
        trained(engine, name, CLIPPINGS[clipping], Plain(), batches, held=held) for engine in ("compiled", "loop")
    )
    assert found.updates.isfinite().all()
    assert found.updates[1].any(), "the other device learns"
    assert_alike(found, expected)


@pytest.mark.parametrize("name", MODELS)
def test_one_record_with_a_huge_gradient_moves_an_update_by_at_most_its_share(name):
    held = records(SHAPE, [12])
    large = held.x.float()
    large[3] *= 1e6
    held = DeviceRecords(large, held.y, held.offsets, held.scale, held.shift)

    def update(indices):
        batches = Batches(np.array([[indices]]), np.array([[8]]))
        return trained("compiled", name, CLIPPINGS["record"], Plain(), batches, held=held).updates[0]

    others = [0, 1, 2, 4, 5, 6, 7]
    assert (update([3, *others]) - update([8, *others])).norm() <= 2 * 0.1 * 0.5 / 8 * (1 + 1e-5)


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=20),
    st.floats(0.05, 0.9),
    st.sampled_from(list(MODELS)),
    st.sampled_from(list(CLIPPINGS)),
    st.sampled_from(list(OBJECTIVES)),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_any_split_of_any_devices_gives_the_same_bits(sizes, rate, name, clipping, objective, noisy, seed):
    random = np.random.default_rng(seed)
    drawn = draw("poisson", sizes, np.full(len(sizes), rate), 3, seed)
    batches = Batches(drawn.indices, drawn.counts, random.integers(0, 4, len(sizes)))
    held = records(SHAPE, sizes)
    held = DeviceRecords(held.x, held.y % CLASSES, held.offsets, held.scale, held.shift)
    chosen = OBJECTIVES[objective]
    module, starts = model_and_starts(name, len(sizes))
    terms = terms_for(chosen, starts, noisy, watched=True)

    def of(rows):
        made = build_engine("compiled", module, CLIPPINGS[clipping], Descent(chosen, 0.5), 8)
        return made.train(starts[rows], held, rows, batches.part(rows), 0.1, terms.part(rows))

    whole = of(np.arange(len(sizes)))
    cuts = np.flatnonzero(random.random(len(sizes) - 1) < 0.4) + 1
    for rows in np.split(random.permutation(len(sizes)), cuts):
        part = of(rows)
        assert part.updates.equal(whole.updates[rows])
        assert part.last_steps.equal(whole.last_steps[rows])


class OwnDirection(Plain):
    """A direction of its own, of a class whose direction has compiled steps."""

    def direction(self, model, gradient, received, personal):
        return 2 * gradient(model), None


class OwnSmoothing(LabelSmoothing):
    """A loss of its own with the options of another."""

    def each(self, scores, labels):
        return 2 * super().each(scores, labels)


@pytest.mark.parametrize(
    ("module", "objective", "loss", "reason"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), Plain(), CROSS_ENTROPY, "chains of Linear"),
        (nn.Sequential(*[nn.Linear(4, 4)] * 2), Plain(), CROSS_ENTROPY, "shared"),
        (nn.Linear(4, 2), OwnDirection(), CROSS_ENTROPY, "the objectives plain"),
        (nn.Linear(4, 2), Plain(), OwnSmoothing(smoothing=0.1), "the losses cross-entropy"),
    ],
    ids=["convolution", "tied", "own objective", "own loss"],
)
def test_what_has_no_compiled_steps_is_refused_with_the_reason(module, objective, loss, reason):
    with pytest.raises(UserError, match=reason) as caught:
        build_engine("compiled", module, None, Descent(objective), 8, loss)
    assert caught.value.problems[0].key == "runtime.engine"


def both(name, held, part=slice(None)):
    module, starts = model_and_starts(name, 1)
    model = starts[0]
    return build_scores("compiled", module)(model, held, part), ModuleScores(module)(model, held, part)


@pytest.mark.parametrize("stored", ["bytes", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_scores_are_the_modules(name, stored):
    held = records(SHAPE, SIZES)
    if stored == "float32":
        held = DeviceRecords(held.x.float() * 0.37, held.y, held.offsets, held.scale, held.shift)
    found, expected = both(name, held)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_records_scores_do_not_depend_on_its_batch():
    held = records(SHAPE, SIZES)
    whole, _ = both("deep", held)
    for first, stop in [(0, 1), (3, 20), (140, 146), (20, 20)]:
        part, _ = both("deep", held, slice(first, stop))
        assert part.numpy().tobytes() == whole[first:stop].numpy().tobytes()


def test_evaluation_by_compiled_scores():
    held = records(SHAPE, SIZES)
    held = DeviceRecords(held.x, held.y % CLASSES, held.offsets, held.scale, held.shift)
    module, starts = model_and_starts("mlp", 1)
    found, expected = (
        Evaluator([build_scores(name, module)], CROSS_ENTROPY).evaluate(starts[0], held)
        for name in ("compiled", "loop")
    )
    np.testing.assert_array_equal(found.by_device[:-1], expected.by_device[:-1])
    np.testing.assert_allclose(found.by_device[-1], expected.by_device[-1], rtol=1e-5)


def test_kernels_that_are_compiled_ahead_are_those_that_are_called():
    kernels.compile_both()
    held, batches = records(SHAPE, SIZES), draw("poisson", SIZES, RATES, 2)
    for objective in OBJECTIVES.values():
        trained(
            "compiled", "mlp", CLIPPINGS["record"], objective, batches, momentum=0.5, loss=LabelSmoothing(smoothing=0.1)
        )
    noisy = StepTerms(None, KnownNoise(np.arange(len(SIZES))), True)
    trained("compiled", "softmax", None, Plain(), batches, terms=lambda _: noisy)
    for stored in (held, DeviceRecords(held.x.float(), held.y, held.offsets, held.scale, held.shift)):
        trained("compiled", "deep", CLIPPINGS["batch"], Plain(), batches, held=stored)
        both("deep", stored)
    assert [len(way_in.signatures) for way_in in (kernels.train, kernels.score)] == [1, 1]


def test_a_thread_compiles_ahead_and_leaves_the_interpreter_as_it_was(monkeypatch):
    compiling, interval = threading.Event(), sys.getswitchinterval()
    monkeypatch.setattr(kernels, "compile_both", compiling.set)
    compile_ahead.__wrapped__()
    for thread in threading.enumerate():
        if thread.name == "compiling":
            thread.join()
    assert compiling.is_set()
    assert sys.getswitchinterval() == interval
