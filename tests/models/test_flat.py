"""Parameters as one vector."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

from h2fdp.models.construct import ParameterLayout, build
from h2fdp.models.registry import MODELS


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.booleans())
def test_a_vector_loaded_comes_back_unchanged(widths, bias):
    pairs = pairwise(widths)
    module = nn.Sequential(*[nn.Linear(narrow, wide, bias=bias) for narrow, wide in pairs])
    flat = ParameterLayout(module)
    assert flat.size == sum(parameter.numel() for parameter in module.parameters())
    vector = torch.arange(flat.size, dtype=torch.float32)
    flat.load(module, vector)
    assert torch.equal(flat.to_vector(module), vector)
    assert torch.equal(torch.cat([view.reshape(-1) for view in flat.views(vector).values()]), vector)


def test_frozen_parameters_are_not_in_the_vector():
    module = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 2))
    assert ParameterLayout(module).names == ("1.weight", "1.bias")


def test_the_gradient_of_the_vector_is_that_of_the_module():
    for name in ("mlp", "cnn12"):
        module = build(name, (1, 28, 28), 10, seed_key=1)
        flat, x, y = ParameterLayout(module), torch.randn(5, 1, 28, 28), torch.arange(5)
        leaf = flat.to_vector(module).requires_grad_()
        nn.functional.cross_entropy(functional_call(module, flat.views(leaf), (x,)), y).backward()
        nn.functional.cross_entropy(module(x), y).backward()
        expected = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])
        assert torch.allclose(leaf.grad, expected, atol=1e-7)


def test_a_stack_of_models_runs_at_once():
    for name in MODELS.keys() - {"resnet18", "vit-tiny"}:  # large, and tried with single records
        shape = MODELS[name].shape
        modules = [build(name, shape, 10, seed_key=key) for key in range(3)]
        flat, x = ParameterLayout(modules[0]), torch.randn(3, 2, *shape)
        stack = torch.stack([flat.to_vector(module) for module in modules])

        def scores(views, records, module=modules[0]):
            return functional_call(module, views, (records,))

        together = vmap(scores)(flat.views(stack), x)
        for module, records, found in zip(modules, x, together, strict=True):
            assert torch.allclose(module(records), found, atol=1e-5), name


def test_tied_weights_are_in_the_vector_once_and_stay_tied():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    flat = ParameterLayout(module)
    assert flat.names == ("0.weight", "0.bias", "1.bias")
    ones = functional_call(module, flat.views(torch.ones(8)), (torch.ones(1, 2),))
    assert ones.tolist() == [[7.0, 7.0]]
