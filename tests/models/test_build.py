"""Models by name and the user's own: sizes, initialisation, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from experiments.ali_dpfl import models as ali_models
from h2fdp.config import Section, check, empty_document
from h2fdp.config.fields import Options
from h2fdp.errors import UserError
from h2fdp.models import construct
from h2fdp.models.architectures import lstm
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.models.registry import MODELS, ModelSection, describe
from h2fdp.wording import note_once


def size(name: str, shape: tuple[int, ...], classes: int = 10, **options: Any) -> int:
    return ParameterLayout(build(name, shape, classes, options)).size


@pytest.mark.parametrize("row", describe(), ids=lambda row: row["name"])
def test_the_registry_states_the_right_number_of_parameters(row):
    entry = MODELS[row["name"]]
    assert size(row["name"], entry.shape) == entry.parameters == row["parameters"]


@pytest.mark.parametrize(
    ("network", "shape", "parameters"),
    [(ali_models.ali_cnn_28, (1, 28, 28), 26_010), (ali_models.ali_cnn_32, (3, 32, 32), 550_570)],
)
def test_the_networks_of_ali_dpfl_have_the_sizes_of_its_tables_and_program(network, shape, parameters):
    assert ParameterLayout(build(lambda: network(shape), shape, 10)).size == parameters


def test_equal_keys_give_equal_models_and_others_differ():
    def vector(key: int) -> Tensor:
        module = build("mlp", (20,), 3, seed_key=key)
        return ParameterLayout(module).to_vector(module)

    key = 2**127 + 5
    assert torch.equal(vector(key), vector(key))
    assert not torch.equal(vector(key), vector(key + 1))


class Own(nn.Module):
    """A user's class: two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("source", [Own, lambda: Own(), Own()])
def test_a_users_class_factory_or_module_plugs_in(source):
    module = build(source, (4,), 2, seed_key=3)
    assert isinstance(module, Own)
    assert ParameterLayout(module).size == 16 + 4 + 4 + 8 + 2


class Forward(nn.Module):
    """A linear model whose scores go through any function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


def frozen() -> nn.Module:
    return nn.Linear(4, 2).requires_grad_(False)


class Buffered(nn.Module):
    """A linear model with a buffer, which a function may change."""

    def __init__(self, change: Callable[[Tensor], Any] | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("place", torch.arange(2).float(), persistent=False)
        self.change = change

    def forward(self, x: Tensor) -> Any:
        if self.change is not None:
            self.change(self.place)
        return self.layer(x) + self.place


class Prepared(nn.Module):
    """A linear model of inputs to which something is done before."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 2), function

    def forward(self, x: Tensor) -> Any:
        return self.layer(self.function(x))


def renormed(scores: Tensor) -> Tensor:
    return functional.batch_norm(scores, None, None, training=True)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)),
            r"the layer `1` \(BatchNorm1d\): batch norm leaks and cannot be averaged: use GroupNorm",
        ),
        (lambda: Forward(renormed), "a record's scores depend on the other records of its batch"),
        (lambda: spectral_norm(nn.Linear(4, 2)), r"changes the buffer `parametrizations\.weight\.0\._u`, state that"),
        (lambda: Buffered(lambda place: place.add_(1)), "changes the buffer `place`, state that is neither averaged"),
        (lambda: Buffered(lambda place: torch.is_grad_enabled() and place.add_(1)), "changes the buffer `place`"),
        (lambda: Prepared(lambda x: x.sub_(0.3)), "the forward pass changes its input"),
        (lambda: Prepared(lambda x: x.square_()), "the forward pass changes its input"),
        (lambda: Forward(lambda scores: scores + scores.shape[0]), "a record's scores depend on the other records"),
        (
            lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False).eval()),
            "batch norm leaks",
        ),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)), r"the layer `1` \(Dropout\): random numbers"),
        (lambda: Forward(lambda scores: scores + torch.randn(2)), "random numbers in the forward pass"),
        (frozen, "the model has no trainable parameters"),
        (nn.Identity, r"scores of shape \(2, 2\), found \(2, 4\)"),
        (lambda: nn.Linear(5, 2), r"the model fails on two records of shape \(4,\) and type torch\.float32: .*Error"),
        (lambda: 3, r"must give an nn\.Module, found int"),
    ],
)
def test_a_module_that_cannot_be_federated_is_refused_with_the_reason(factory, message):
    with pytest.raises(UserError, match=message) as caught:
        build(factory, (4,), 2)
    assert caught.value.problems[0].key == "model"


OF_A_BATCH = {
    "largest": lambda x: x / x.abs().max(),
    "least": lambda x: x - x.min(),
    "mean": lambda x: x - x.mean(dim=0),
    "deviation": lambda x: x / (1 + x.std()),
    "median": lambda x: x - x.median(),
    "order": lambda x: x * torch.arange(len(x))[:, None],
    "running sum": lambda x: x.cumsum(dim=0),
    "neighbour": lambda x: x + x.roll(1, 0),
    "first record": lambda x: x + x[:1],
}


@pytest.mark.parametrize("name", OF_A_BATCH)
def test_what_a_record_takes_from_its_batch_is_found(name):
    with pytest.raises(UserError, match="a record's scores depend on the other records of its batch"):
        build(lambda: Prepared(OF_A_BATCH[name]), (4,), 2)


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), nn.GroupNorm(1, 2), nn.LayerNorm(2)])
def test_layers_that_act_on_each_record_alone_are_allowed(layer):
    build(lambda: nn.Sequential(nn.Linear(4, 2), layer), (4,), 2)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.Dropout(0.5), nn.InstanceNorm1d(2, track_running_stats=True)])
def test_layers_in_eval_mode_stay_in_it(layer):
    module = build(lambda: nn.Sequential(nn.Linear(4, 2), nn.Unflatten(1, (2, 1)), layer, nn.Flatten()).eval(), (4,), 2)
    assert not module[2].training


@pytest.mark.parametrize("function", [torch.log, lambda x: x.view(-1, 2, 2).flatten(1).sqrt(), torch.sigmoid])
def test_inputs_from_0_to_1_are_enough_to_be_tried(function):
    build(lambda: Prepared(function), (4,), 2)


def test_a_buffer_that_no_forward_pass_changes_is_allowed():
    assert build(Buffered, (4,), 2).place.tolist() == [0.0, 1.0]


class Summing(nn.Module):
    """Whole numbers, of which each is the largest so far."""

    def forward(self, x: Tensor) -> Any:
        return x.long().cummax(dim=0).values


def test_records_of_whole_numbers_reach_an_embedding_as_such():
    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(3, 2), nn.Flatten(), nn.Linear(8, 2))

    build(model, (4,), 2, whole=True)
    with pytest.raises(UserError, match="a record's scores depend on the other records"):
        build(lambda: nn.Sequential(Summing(), *model()), (4,), 2, whole=True)
    with pytest.raises(UserError, match=r"two records of shape \(4,\) and type torch\.float32: .*(indices|Long)"):
        build(model, (4,), 2)


FIXED = {  # of `fix: true`: the layer, and what becomes of it
    "trained": (nn.BatchNorm2d(48), nn.GroupNorm(16, 48)),
    "vectors": (nn.BatchNorm1d(6), nn.GroupNorm(1, 6)),
    "without parameters": (nn.BatchNorm2d(6, affine=False), nn.GroupNorm(2, 6, affine=False)),
    "frozen, in eval mode": (nn.BatchNorm2d(6).requires_grad_(False).eval(), None),
    "in eval mode": (nn.BatchNorm2d(6).eval(), None),
    "frozen, in train mode": (nn.BatchNorm2d(6).requires_grad_(False), None),
}


@pytest.mark.parametrize("name", FIXED)
def test_fix_replaces_batch_norm_that_is_trained_and_keeps_what_is_frozen(name, capsys):
    layer, expected = FIXED[name]
    source = read({"name": "tests.models.test_build:wrapped", "layer": layer, "fix": True})
    note_once.cache_clear()
    fixed = construct.source_of(source, (1, 4, 4), 3)()[0]
    said = " ".join(capsys.readouterr().err.split())
    if expected is None:
        assert fixed is layer
        assert not fixed.training
        assert ("eval mode, for frozen parameters, in 0" in said) == (name == "frozen, in train mode")
    else:
        assert repr(fixed) == repr(expected)
        assert "model.fix: group norm takes the place of batch norm in 0" in said
        from opacus.validators import batch_norm  # seconds, which every other worker is spared

        assert repr(batch_norm.fix(layer, num_groups=1 if name == "vectors" else None)) == repr(expected)


def wrapped(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer)


class Backbone(nn.Module):
    """A frozen one as it comes: in train mode, of half precision, with numbers of places and norms without weights."""

    def __init__(self, kind: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.register_buffer("position_ids", torch.arange(64))
        self.register_buffer("mask", torch.ones(64, dtype=torch.bool), persistent=False)
        layers = [nn.Linear(64, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8, affine=False), nn.Dropout(0.5)]
        self.layers, self.kind = nn.Sequential(*layers).to(kind).requires_grad_(False), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers((x.flatten(1)[:, self.position_ids] * self.mask).to(self.kind)).float()
        return found


class Headed(nn.Sequential):
    def __init__(self, kind: torch.dtype = torch.bfloat16) -> None:
        super().__init__(Backbone(kind), nn.BatchNorm1d(8), nn.Linear(8, 10))


def test_fix_touches_no_frozen_layer_but_for_its_mode(capsys):
    note_once.cache_clear()
    made = Headed()
    fixed = construct._fixed(lambda: made)
    said = " ".join(capsys.readouterr().err.split())
    assert [type(each).__name__ for each in fixed[0].layers] == ["Linear", "BatchNorm1d", "BatchNorm1d", "Dropout"]
    assert not any(each.training for each in fixed[0].layers)
    assert isinstance(fixed[1], nn.GroupNorm)
    assert "group norm takes the place of batch norm in 1; eval mode, for frozen parameters, in 0.layers.1, " in said
    assert said.endswith("0.layers.1, 0.layers.2, 0.layers.3")
    assert fixed[0].layers[0].weight.dtype == torch.bfloat16


def test_a_frozen_batch_norm_without_statistics_is_refused_as_it_mixes_in_eval_mode():
    def model() -> nn.Module:
        norm = nn.BatchNorm1d(64, track_running_stats=False).requires_grad_(False)
        return nn.Sequential(nn.Flatten(), norm, nn.Linear(64, 10))

    with pytest.raises(UserError, match=r"the layer `1` .*batch norm leaks in eval mode, too"):
        build(lambda: construct._fixed(model), (1, 8, 8), 10)


def test_its_scores_are_those_of_torchs_lstm():
    torch.manual_seed(0)
    ours = lstm((6,), 3, vocabulary=20, embedding=5, hidden=4)
    theirs = nn.LSTM(5, 4, batch_first=True, bidirectional=True)
    for at, suffix in enumerate(["", "_reverse"]):
        for name, value in (
            ("weight_ih", ours.inputs[at].weight),
            ("weight_hh", ours.states[at].weight),
            ("bias_ih", ours.inputs[at].bias),
            ("bias_hh", torch.zeros(16)),
        ):
            getattr(theirs, f"{name}_l0{suffix}").data = value.data
    x = torch.randint(0, 21, (7, 6))
    _, (state, _) = theirs(ours.embedding(x))
    expected = ours.scores(torch.cat(list(state), dim=1))
    torch.testing.assert_close(ours(x.float()), expected)
    torch.testing.assert_close(torch.func.vmap(lambda record: ours(record[None])[0])(x.float()), expected)


def test_gradients_of_single_records_are_those_of_autograd():
    model = lstm((4,), 2, vocabulary=9, embedding=3, hidden=2)
    parameters = dict(model.named_parameters())
    x, y = torch.randint(0, 10, (5, 4)).float(), torch.tensor([0, 1, 0, 1, 1])

    def loss(values, record, label):
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, (record[None],)), label[None])

    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, y)
    for place in range(5):
        expected = torch.autograd.grad(loss(parameters, x[place], y[place]), list(parameters.values()))
        for ours, theirs in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(ours[place], theirs)


class File(Section):
    model: ModelSection


def read(value: Any) -> Options:
    return check(File, empty_document("x.yaml", Path(), {"model": value})).model


@pytest.mark.parametrize("value", ["softmax", "mlp", {"name": "mlp", "hidden": 3}])
def test_a_resolved_section_is_read_back_equal(value):
    assert read(File(model=read(value)).model_dump(mode="json")["model"]) == read(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("softmaxx", f'x.yaml: model: expected one of {", ".join(MODELS)}, or module:Name, found "softmaxx"; did you'),
        ({"name": "softmax", "hidden": 3}, "model.hidden: `hidden` means nothing for softmax; allowed here: name"),
        ({"name": "mlp", "hidden": 0}, "model.hidden: expected a whole number of at least 1, found 0"),
        ({"name": "mlp", "hiden": 4}, "model.hiden: unknown key; did you mean `hidden`?"),
    ],
)
def test_a_wrong_section_is_told_by_its_key(value, message):
    with pytest.raises(UserError) as caught:
        read(value)
    assert message in str(caught.value)
