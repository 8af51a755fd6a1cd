"""Modules that are chains: Linear, Conv2d and GroupNorm layers, between them torch's own ones without parameters."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from h2fdp.training.gradients.convolution import Convolution, Windows
from h2fdp.training.gradients.layers import (
    Differentiated,
    Flattened,
    GroupNorm,
    LargestOfWindows,
    Linear,
    Probabilities,
    Rectifier,
    Step,
    Tanh,
)

# What gives each number the same bits wherever it stands in a tensor. Sigmoid, SiLU, ELU, Softplus and others do not:
# torch computes the last few numbers of a tensor, those that fill no vector of the processor, by another routine.
_EXACT_ANYWHERE = (nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.Tanh, nn.Identity)
_OWN_MEMORY = (Linear, Convolution, GroupNorm, LargestOfWindows)  # they need their outputs no more on the way back


def chain_of(module: nn.Module, numbers: torch.dtype = torch.float32) -> list[Step] | None:
    """The steps of a module from (n, W, *shape) to scores (n, W, classes); None where it is no such chain.

    Parameters that are frozen or shared by two layers make it none: their gradients are not their layer's alone.
    A pool of what a rectifier gives is taken before it, on fewer numbers: the largest of the rectified numbers of a
    window is its largest one, rectified, and the gradient goes to the same place, or nowhere.

    Args:
        numbers: to which the factors of products are rounded in convolutions. The weights of a linear layer are read
            once for a batch, and to round them takes as long as to multiply.
    """
    if not is_trained_as_it_is(module):
        return None
    steps: list[Step] = []
    for name, part in leaves(module):
        step = _step(part, tuple(f"{name}.{own}".lstrip(".") for own, _ in part.named_parameters()), numbers)
        if step is None:
            return None
        pools = isinstance(step, LargestOfWindows) and steps and isinstance(steps[-1], Rectifier)
        steps.insert(len(steps) - bool(pools), step)
    for place, step in enumerate(steps):
        if isinstance(step, (Rectifier, Tanh)) and not (place and isinstance(steps[place - 1], _OWN_MEMORY)):
            steps[place] = Differentiated(nn.ReLU() if isinstance(step, Rectifier) else nn.Tanh())
    if _ends_in_probabilities(module) and isinstance(steps[-2], Linear):
        steps[-1] = Probabilities()
    return steps if any(step.names for step in steps) else None


def leaves(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """The parts of nested sequences, in their order, with their names in the whole module."""
    if type(module) is not nn.Sequential:
        return [(prefix, module)]
    return [leaf for name, child in module.named_children() for leaf in leaves(child, f"{prefix}.{name}".lstrip("."))]


def is_trained_as_it_is(module: nn.Module) -> bool:
    """Whether its layers say all: no hooks, which no layer here would run, no frozen parameters and no shared ones."""
    parameters = [name for name, held in module.named_parameters(remove_duplicate=False) if held.requires_grad]
    hooked = any(_is_hooked(part) for part in module.modules())
    return not hooked and parameters == [name for name, _ in module.named_parameters()]


def flattens(module: nn.Module) -> bool:
    """Whether it makes a vector of each record."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def _ends_in_probabilities(module: nn.Module) -> bool:
    """Whether a Softmax over classes follows a Linear layer, whose outputs it takes as (records, classes)."""
    if type(module) is not nn.Sequential or len(module) < 2:
        return False
    last, before = module[-1], module[-2]
    return type(last) is nn.Softmax and last.dim in (1, -1) and type(before) is nn.Linear


def _step(module: nn.Module, names: tuple[str, ...], numbers: torch.dtype) -> Step | None:
    """What runs a layer over a stack; None for a layer, or a form of it, that nothing here knows."""
    if not names:
        # A user's own would be handed the records of a batch at once here. Elsewhere it sees them one by one where each
        # is clipped, so that it cannot couple them.
        return _without_parameters(module) if type(module).__module__.partition(".")[0] == "torch" else None
    if not {name.rpartition(".")[2] for name in names} <= {"weight", "bias"}:  # reparametrised
        return None
    if type(module) is nn.Linear:
        return Linear(names)
    if type(module) is nn.GroupNorm and module.affine:
        return GroupNorm(names, module.num_groups, module.eps)
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if plain and not isinstance(module.padding, str):
            windows = Windows(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))
            return Convolution(names, windows, numbers)
    return None


def _without_parameters(module: nn.Module) -> Step:
    if type(module) is nn.ReLU:
        return Rectifier()
    if type(module) is nn.Tanh:
        return Tanh()
    if flattens(module):
        return Flattened()
    if type(module) is nn.MaxPool2d and not module.return_indices:
        sides = map(_pair, (module.kernel_size, module.stride, module.padding, module.dilation))
        return LargestOfWindows((*sides, module.ceil_mode))
    if getattr(module, "inplace", False):  # it would overwrite what autograd goes back through
        module = copy(module)
        setattr(module, "inplace", False)  # noqa: B010
    if type(module) in _EXACT_ANYWHERE:
        return Differentiated(module)
    # Nor does it matter to a Softmax which records are computed with one.
    return Differentiated(partial(_all_records if type(module) is nn.Softmax else _device_by_device, module))


def _is_hooked(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in hooks)


def _pair(sides: Any) -> tuple[int, int]:
    height, width = sides if isinstance(sides, tuple) else (sides, sides)
    return height, width


def _device_by_device(module: nn.Module, x: Tensor) -> Tensor:
    return torch.stack([module(own.clone()) for own in x.unbind()])  # it may work in place


def _all_records(module: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = module(x.flatten(0, 1))
    return output.view(*x.shape[:2], *output.shape[1:])
