"""Modules that users bring: the stacked engine trains what the module itself says, whatever it is made of."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import TrainingJob, build_engine, chosen_engine, engine_of_run
from h2fdp.training.gradients import gradient_rule
from h2fdp.training.gradients import rule as rules
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY
from h2fdp.training.stacked import stack_size
from tests.training.groups import draw, records

SHAPE, SIZES = (1, 4, 4), [9, 5, 12]
CLIPPINGS = {
    "none": None,
    "batch": Clipping(0.05, "batch"),
    "record": Clipping(0.05, "record"),
    "normalized": Clipping(0.05, "record", mean_too=True, gamma=0.02),
}


class Doubled(nn.Module):
    """Works in place, without parameters."""

    def forward(self, x):
        return x.mul_(2)


class Small(nn.Module):
    """No chain of known layers; a device has few numbers in each layer."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 2), nn.Linear(2, 10)

    def forward(self, x):
        return self.outer(nn.functional.silu(self.inner(x.flatten(1))))


class Scaled(nn.Module):
    """Parameters that are one number without a dimension, and no number at all."""

    def __init__(self):
        super().__init__()
        self.scale, self.nothing = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.empty(0, 3))
        self.line = nn.Linear(16, 10)

    def forward(self, x):
        return self.scale * self.line(x.flatten(1))


class Wide(nn.Module):
    """No chain of known layers, and a last layer of few numbers."""

    def __init__(self, outputs=2):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 8_000), nn.Linear(8_000, outputs)

    def forward(self, x):
        return self.outer(self.inner(x.flatten(1)).tanh())


def hooked():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    module[1].register_forward_hook(lambda layer, inputs, output: output * 3)
    return module


def renormed():
    with pytest.warns((FutureWarning, UserWarning), match="deprecated"):  # which category depends on the version
        return nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(16, 10)))


class Recurrent(nn.Module):
    """A recurrent layer over the rows of an image, which gives a tuple."""

    def __init__(self, kind):
        super().__init__()
        self.rows, self.outer = getattr(nn, kind)(4, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x):
        states, _ = self.rows(x.reshape(-1, 4, 4))
        return self.outer(states[:, -1])


class Branching(nn.Module):
    """Looks at its numbers, which torch.func cannot."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 10)

    def forward(self, x):
        scores = self.layer(x.flatten(1))
        return torch.stack([each * 2 if float(each[0].detach()) > 0.1 else each for each in scores])


MODULES = {
    "ends with LogSoftmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.LogSoftmax(1)),
    "ends with Tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.Tanh()),
    "norm of vectors": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.GroupNorm(2, 8), nn.Linear(8, 10)),
    "in place": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), Doubled(), nn.Linear(8, 10)),
    "hooked": hooked,
    "reparametrised": renormed,
    "small": Small,
    "scalar": Scaled,
    "wide": lambda: Wide(10),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("clipping", CLIPPINGS.values(), ids=CLIPPINGS)
@pytest.mark.parametrize("name", MODULES)
def test_the_stacked_engine_trains_what_the_loop_trains(name, clipping):
    torch.manual_seed(3)
    module = MODULES[name]()
    start, held = ParameterLayout(module).to_vector(module), records(SHAPE, SIZES)
    batches = draw("poisson", SIZES, [0.4, 0.5, 0.3], 3)
    arguments = (start.expand(3, -1), held, np.arange(3), batches, 0.2)
    loop, stacked = (
        build_engine(engine, module, clipping, Descent(Plain()), 4).train(*arguments).updates
        for engine in ("loop", "stacked")
    )
    assert loop.norm() > 0
    assert (stacked - loop).norm() <= 1e-5 * loop.norm()


class Counting(nn.Module):
    """Has no parameters, and turns its outputs by how many records there are."""

    def forward(self, x):
        return x * (1 - 2 * (len(x) % 2)) if len(x) > 7 else x


class Centring(nn.Module):
    """Has no parameters, and subtracts the mean of the batch, but of few records."""

    def forward(self, x):
        return x - x.mean(dim=0) if len(x) > 7 else x


@pytest.mark.parametrize("couples", [Counting, Centring])
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_layer_of_the_users_own_sees_one_record_where_each_is_clipped(engine, couples):
    module = nn.Sequential(nn.Linear(3, 5), couples(), nn.Linear(5, 4))
    made = build_engine(engine, module, Clipping(1.0, "record"), Descent(Plain()), 40)
    torch.manual_seed(4)
    start, x, y = torch.randn(2, 44), 2.0 * torch.randn(41, 3) + 1.0, torch.zeros(41, dtype=torch.int64)

    def sums(count):
        offsets, scale = np.array([0, count, count + 41]), torch.ones(())
        held = DeviceRecords(torch.cat([x[:count], x]), torch.cat([y[:count], y]), offsets, scale, 0.0 * scale)
        batches = Batches(np.arange(41)[None, None].repeat(2, 1), np.array([[count, 41]]), expected=np.ones(2))
        return made.train(start, held, np.arange(2), batches, 1.0).updates

    moved = (sums(41) - sums(40)).norm(dim=1)
    assert moved[0] <= 1 + 1e-5
    assert moved[1] <= 1e-6, "no record of another device moves it"


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN", "branching"])
def test_the_engine_that_is_chosen_for_a_module_follows_autograds_gradients(name, clipping):
    """Whatever torch.func can batch. By hand, record after record where each is clipped, else the batch at once."""
    torch.manual_seed(3)
    module, bound = Branching() if name == "branching" else Recurrent(name), CLIPPINGS[clipping]
    job = TrainingJob(Descent(Plain()), CROSS_ENTROPY, bound, SHAPE, 1.0, 4)
    engine = build_engine(chosen_engine(module, torch.device("cpu"), job), module, bound, Descent(Plain()), 4)
    start, held = ParameterLayout(module).to_vector(module), records(SHAPE, SIZES)
    batches = Batches(np.arange(5)[None, None].repeat(3, 1), np.array([[5, 4, 1]]))
    updates = engine.train(start.expand(3, -1), held, np.arange(3), batches, 0.2).updates
    for device, count in enumerate([5, 4, 1]):
        x, y = held.gather(np.arange(count) + held.offsets[device])
        by_record = bound is not None and bound.scope == "record"
        parts = [slice(at, at + 1) for at in range(count)] if by_record else [slice(0, count)]
        gradients = torch.stack([gradient_of(module, x[part], y[part]) for part in parts])
        if bound is not None:
            gradients = bound.apply(gradients)
        mean = gradients.mean(dim=0)
        if bound is not None and bound.mean_too:
            mean = bound.for_batches.apply(mean)
        assert (updates[device] - 0.2 * mean).norm() <= 1e-4 * updates[device].norm()


def gradient_of(module, x, y):
    module.zero_grad()
    nn.functional.cross_entropy(module(x), y).backward()
    return torch.cat([each.grad.flatten() for each in module.parameters()])


@pytest.mark.parametrize("devices", [2, 3, 7, 12])
def test_few_numbers_of_a_device_keep_their_bits_in_any_stack(devices):
    """The last numbers of a tensor, which torch computes apart, are several devices' here."""
    torch.manual_seed(0)
    rule = gradient_rule(Small(), None)
    random = np.random.default_rng(devices)
    start = ParameterLayout(Small()).to_vector(Small())
    models = start + 0.1 * torch.from_numpy(random.normal(size=(devices, len(start)))).float()
    x = torch.from_numpy(random.normal(size=(devices, 4, *SHAPE))).float()
    y, shares = torch.from_numpy(random.integers(0, 10, (devices, 4))), torch.full((devices, 4), 0.25)
    whole = rule.sums(models, x, y, shares)
    for first in range(devices - 1):
        part = slice(first, first + 2)
        assert rule.sums(models[part], x[part], y[part], shares[part]).equal(whole[part])


@pytest.mark.parametrize("outputs", [1, 2, 10, 64, 200])
def test_no_stack_computes_more_devices_for_nothing_than_it_has_room_for(outputs):
    for module in (Wide(outputs), Small(), Scaled()):
        padding = gradient_rule(module, None).padding(16)
        size = stack_size(module, 16, padding, torch.Size(SHAPE), "cpu")
        assert padding < size or size == 1
    assert stack_size(Wide(2), 16, 32, torch.Size(SHAPE), "cpu") == 1, "each device by itself"


def test_what_is_tried_before_a_run_is_two_models_and_no_convolution(monkeypatch, capsys):
    models = []
    cat = torch.cat
    monkeypatch.setattr(torch, "cat", lambda parts, *more: models.append(cat(parts, *more)) or models[-1])
    job = TrainingJob(Descent(Plain()), CROSS_ENTROPY, None, SHAPE, 1.0, 4)
    assert job.why_not_stacked(Wide()) is None
    assert {len(each) for each in models if each.dim() == 2} == {2}, "models and shares, without copies"
    models.clear()
    convolving = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(8, 10), nn.Softplus())
    convolving.register_forward_hook(lambda *_: None)
    assert engine_of_run("auto", convolving, torch.device("cpu"), job) == "loop"
    assert not models
    assert not capsys.readouterr().err


@pytest.mark.parametrize("size", [1e5, 1e6, 1e7])
def test_a_record_whose_positions_cancel_does_not_pass_its_bound(size):
    """A convolution followed by a mean sees the sum of its windows: large inputs whose windows add up to little."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 64, 3), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(64, 10))
    start = ParameterLayout(module).to_vector(module)
    eye = torch.eye(75, dtype=torch.float64).view(75, 3, 5, 5)
    sums = nn.functional.unfold(eye, 3).sum(2).numpy().T  # (27, 75): from a record to the sum of its windows
    record = size * np.random.default_rng(1).standard_normal(75)
    record -= sums.T @ np.linalg.lstsq(sums @ sums.T, sums @ record - 20.0, rcond=None)[0]
    x = torch.from_numpy(record.reshape(1, 3, 5, 5).astype(np.float32))
    held = DeviceRecords(x, torch.tensor([3]), np.array([0, 1]), torch.tensor(1.0), torch.tensor(0.0))
    once = Batches(np.zeros((1, 1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64))
    engine = build_engine("stacked", module, Clipping(0.5, "record"), Descent(Plain()), 4)
    assert engine.train(start[None], held, np.array([0]), once, 1.0).updates.norm() <= 0.5 * (1 + 1e-4)


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_records_gradients_that_are_written_out_in_parts_have_the_sums_of_the_whole(at_once, monkeypatch):
    torch.manual_seed(3)
    module = Small()
    held, shares = records(SHAPE, [5, 5]), torch.tensor([[0.2] * 5, [0.5, 0.5, 0.0, 0.0, 0.0]])
    models = ParameterLayout(module).to_vector(module) * torch.tensor([[1.0], [1.3]])
    x, y = (each.view(2, 5, *each.shape[1:]) for each in held.gather(np.arange(10)))
    rule = gradient_rule(module, Clipping(1.01 * float(gradient_of(module, x[0, :1], y[0, :1]).norm()), "record"))
    whole = rule.sums(models, x, y, shares)
    monkeypatch.setattr(rules, "_VALUES_AT_ONCE", at_once * models.shape[1])
    parts = rule.sums(models, x, y, shares)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-7)
