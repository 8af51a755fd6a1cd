"""What layers say of their records' gradients, against gradients written out by torch; windows, against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from h2fdp.training.gradients.convolution import Windows
from h2fdp.training.gradients.layers import chain_of
from h2fdp.training.gradients.per_example import Collected, ExplicitGradients, GhostGradients

SIDES = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(SIDES, SIDES, st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from([1, 3, 40]), st.integers(4, 9))
def test_windows_are_torchs_and_their_way_back_is_the_transpose(kernel, stride, padding, channels, side):
    windows = Windows(kernel, stride, padding)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, channels, side, side + 1, generator=generator)
    found = windows.unfold(images)
    expected = nn.functional.unfold(images, kernel, padding=padding, stride=stride)
    by_channel = found.unflatten(2, (*kernel, channels)).permute(0, 4, 2, 3, 1).flatten(1, 3)
    assert by_channel.equal(expected)
    other = torch.randn(found.shape, generator=generator)
    inner, outer = (found * other).sum(), (images * windows.fold(other, images.shape)).sum()
    torch.testing.assert_close(inner, outer, rtol=1e-4, atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))
def test_ghost_norms_and_sums_are_those_of_the_gradients(devices, width, positions, inputs, outputs):
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(devices, width, positions, inputs, generator=generator)
    delta = torch.randn(devices, width, positions, outputs, generator=generator)
    factors = torch.rand(devices, width, generator=generator)
    ghost, written = GhostGradients(a, delta), ExplicitGradients((delta.transpose(2, 3) @ a).flatten(2))
    torch.testing.assert_close(ghost.squared_norms(), written.squared_norms(), rtol=1e-4, atol=1e-4)

    def weighted(gradients):
        gradients.add(factors, "weight", target := Collected())
        return target.vector(["weight"])

    torch.testing.assert_close(weighted(ghost), weighted(written), rtol=1e-4, atol=1e-5)
    bad = factors > 0.5
    assert not ghost.without(bad).squared_norms()[bad].any()
    torch.testing.assert_close(weighted(ghost.without(bad)), weighted(written.without(bad)))


LAYERS = {
    "linear": (nn.Linear(6, 4), (6,)),
    "tokens": (nn.Linear(6, 4, bias=False), (9, 6)),
    "group norm": (nn.GroupNorm(2, 4), (4, 3, 5)),
    "strided": (nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0)), (3, 7, 6)),
    "strided, few windows": (nn.Conv2d(3, 20, 3, stride=3), (3, 6, 6)),
    "overlapping": (nn.Conv2d(3, 4, 3, padding=1, bias=False), (3, 5, 6)),
    "overlapping, few windows": (nn.Conv2d(9, 20, 3), (9, 4, 4)),
}


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_agrees_with_torch_record_by_record(name, devices):
    module, shape = LAYERS[name]
    (step,) = chain_of(module)
    generator = torch.Generator().manual_seed(2)
    parameters = {
        key: torch.randn(devices, *held.shape, generator=generator) for key, held in module.named_parameters()
    }
    x = torch.randn(devices, 4, *shape, generator=generator)

    def of_record(own, record, delta):
        return (functional_call(module, own, (record[None],))[0] * delta).sum()

    output, saved = step.forward(parameters, x)
    leaf = x.clone().requires_grad_()
    expected = vmap(lambda own, records: functional_call(module, own, (records,)))(parameters, leaf)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    delta = torch.randn(output.shape, generator=generator)
    (expected_back,) = torch.autograd.grad(expected, leaf, delta)
    each = vmap(vmap(grad(of_record), in_dims=(None, 0, 0)))(parameters, x, delta)
    factors, target = torch.rand(devices, 4, generator=generator), Collected()
    back, records = step.back(parameters, saved, delta, True, True)
    torch.testing.assert_close(back, expected_back, rtol=1e-4, atol=1e-4)
    for name, gradients, found in zip(step.names, each.values(), records, strict=True):
        flat = gradients.flatten(2)
        torch.testing.assert_close(found.squared_norms(), flat.square().sum(dim=2), rtol=1e-4, atol=1e-4)
        found.add(factors, name, target)
    weighted = torch.cat([(one.flatten(2) * factors[..., None]).sum(dim=1) for one in each.values()], dim=1)
    torch.testing.assert_close(target.vector(step.names), weighted, rtol=1e-4, atol=1e-4)
    back, sums = step.back(parameters, saved, delta, True, False)
    torch.testing.assert_close(back, expected_back, rtol=1e-4, atol=1e-4)
    target = Collected()
    for name, found in zip(step.names, sums, strict=True):
        found.add(None, name, target)
    summed = torch.cat([one.flatten(2).sum(dim=1) for one in each.values()], dim=1)
    torch.testing.assert_close(target.vector(step.names), summed, rtol=1e-4, atol=1e-4)
