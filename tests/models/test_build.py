"""Models by name and the user's own: sizes, initialisation, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from experiments import ali_models
from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout, build
from h2fdp.models.registry import MODELS, describe


def size(name: str, shape: tuple[int, ...], classes: int = 10, **options: Any) -> int:
    return ParameterLayout(build(name, shape, classes, options)).size


@pytest.mark.parametrize("row", describe(), ids=lambda row: row["name"])
def test_the_registry_states_the_right_number_of_parameters(row):
    entry = MODELS[row["name"]]
    assert size(row["name"], entry.shape) == entry.parameters == row["parameters"]


@pytest.mark.parametrize(
    ("network", "shape", "parameters"),
    [
        (ali_models.ali_cnn_28, (1, 28, 28), 26_010),
        (ali_models.ali_cnn_32, (3, 32, 32), 550_570),
    ],
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


def with_buffer() -> nn.Module:
    module = nn.Linear(4, 2)
    module.register_buffer("counter", torch.zeros(1))
    return module


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
        (lambda: spectral_norm(nn.Linear(4, 2)), r"the buffer `parametrizations\.weight\.0\._u` is state outside"),
        (with_buffer, "the buffer `counter` is state outside the parameters"),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)), r"the layer `1` \(Dropout\): random numbers"),
        (lambda: Forward(lambda scores: scores + torch.randn(2)), "random numbers in the forward pass"),
        (frozen, "the model has no trainable parameters"),
        (nn.Identity, r"scores of shape \(2, 2\), found \(2, 4\)"),
        (lambda: nn.Linear(5, 2), r"the model fails on two records of shape \(4,\)"),
        (lambda: 3, r"must give an nn\.Module, found int"),
    ],
)
def test_a_module_that_cannot_be_federated_is_refused_with_the_reason(factory, message):
    with pytest.raises(UserError, match=message) as caught:
        build(factory, (4,), 2)
    assert caught.value.problems[0].key == "model"


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), nn.GroupNorm(1, 2), nn.LayerNorm(2)])
def test_layers_that_act_on_each_record_alone_are_allowed(layer):
    build(lambda: nn.Sequential(nn.Linear(4, 2), layer), (4,), 2)
