"""Modules that are chains: Linear, Conv2d and GroupNorm layers, between them torch's own ones without parameters."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from h2fdp.training.gradients.convolution import StackedConvolution, Windows
from h2fdp.training.gradients.layers import Layer, Probabilities, StackedGroupNorm, StackedLinear

# What gives each number the same bits wherever it stands in a tensor. Sigmoid, SiLU, ELU, Softplus and others do not:
# torch computes the last few numbers of a tensor, those that fill no vector of the processor, by another routine.
_EXACT_ANYWHERE = (nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.Tanh, nn.Identity)
_RECORD_BY_RECORD = (nn.MaxPool2d, nn.Softmax)  # nor does it matter to these which records are beside one


@dataclass(frozen=True)
class Parametrised:
    """A layer of the chain, with the names of its parameters in the whole module."""

    layer: Layer
    names: tuple[str, ...]


Step = Parametrised | Callable[[Tensor], Tensor]


def chain_of(module: nn.Module) -> list[Step] | None:
    """The steps of a module from (n, W, *shape) to scores (n, W, classes); None where it is no such chain.

    Parameters that are frozen or shared by two layers make it none: their gradients are not their layer's alone.
    """
    if not is_trained_as_it_is(module):
        return None
    steps = _steps(module, "")
    if steps is None:
        return None
    if _ends_in_probabilities(module) and isinstance(steps[-2], Parametrised):
        steps[-1] = Probabilities()
    return steps


def is_trained_as_it_is(module: nn.Module) -> bool:
    """Whether its layers say all: no hooks, which no layer here would run, no frozen parameters and no shared ones."""
    parameters = [name for name, held in module.named_parameters(remove_duplicate=False) if held.requires_grad]
    hooked = any(_is_hooked(part) for part in module.modules())
    return not hooked and parameters == [name for name, _ in module.named_parameters()]


def is_of_torch(module: nn.Module) -> bool:
    """Whether a layer is one of torch's.

    A user's own would be handed the records of a batch at once here. Elsewhere it sees them one by one where each is
    clipped, so that it cannot couple them.
    """
    return type(module).__module__.partition(".")[0] == "torch"


def _ends_in_probabilities(module: nn.Module) -> bool:
    """Whether a Softmax over classes follows a Linear layer, whose outputs it takes as (records, classes)."""
    if type(module) is not nn.Sequential or len(module) < 2:
        return False
    last, before = module[-1], module[-2]
    return type(last) is nn.Softmax and last.dim in (1, -1) and type(before) is nn.Linear


def _steps(module: nn.Module, prefix: str) -> list[Step] | None:
    if type(module) is nn.Sequential:
        steps: list[Step] = []
        for name, child in module.named_children():
            inner = _steps(child, f"{prefix}{name}.")
            if inner is None:
                return None
            steps += inner
        return steps
    if not any(True for _ in module.parameters()):
        if not is_of_torch(module):
            return None
        if getattr(module, "inplace", False):  # it would overwrite what autograd goes back through
            module = copy(module)
            setattr(module, "inplace", False)  # noqa: B010
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            return [_flatten]
        if type(module) in _EXACT_ANYWHERE:
            return [module]
        return [partial(_all_records if type(module) in _RECORD_BY_RECORD else _device_by_device, module)]
    layer = _layer(module)
    return (
        None if layer is None else [Parametrised(layer, tuple(prefix + name for name, _ in module.named_parameters()))]
    )


def _layer(module: nn.Module) -> Layer | None:
    """What runs a layer over a stack; None for a layer, or a form of it, that nothing here knows."""
    if not {name for name, _ in module.named_parameters()} <= {"weight", "bias"}:  # reparametrised
        return None
    if type(module) is nn.Linear:
        return StackedLinear(module.bias is not None)
    if type(module) is nn.GroupNorm and module.affine:
        return StackedGroupNorm(module.num_groups, module.eps)
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if plain and not isinstance(module.padding, str):
            windows = Windows(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))
            return StackedConvolution(windows, module.bias is not None)
    return None


def _is_hooked(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in hooks)


def _pair(sides: tuple[int, ...]) -> tuple[int, int]:
    height, width = sides
    return height, width


def _flatten(x: Tensor) -> Tensor:
    return x.flatten(2)


def _device_by_device(module: nn.Module, x: Tensor) -> Tensor:
    return torch.stack([module(own.clone()) for own in x.unbind()])  # it may work in place


def _all_records(module: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = module(x.flatten(0, 1))
    return output.view(*x.shape[:2], *output.shape[1:])
