"""How a module becomes a chain of layers that are trained without autograd."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeGuard

import torch
from torch import nn

from h2fdp.training.direct.layers import (
    Convolution,
    Differentiated,
    Flattened,
    GroupNorm,
    LargestOfWindows,
    Linear,
    Pair,
    Rectifier,
    Step,
    Tanh,
)
from h2fdp.training.gradients.chain import is_of_torch, is_trained_as_it_is


def direct_chain(module: nn.Module, numbers: torch.dtype = torch.float32) -> list[Step] | None:
    """The steps of a chain of Linear, Conv2d and GroupNorm layers and torch's own without parameters; else None.

    A pool of what a rectifier gives is taken before it, on fewer numbers: the largest of the rectified numbers of a
    window is its largest one, rectified, and the gradient goes to the same place, or nowhere.

    Args:
        numbers: to which the factors of products are rounded in convolutions. The weights of a linear layer are read
            once for a batch, and to round them takes as long as to multiply.
    """
    if not is_trained_as_it_is(module):
        return None
    steps: list[Step] = []
    for name, part in _leaves(module, ""):
        step = _step(part, tuple(f"{name}{own}" for own, _ in part.named_parameters()), numbers)
        if step is None:
            return None
        if isinstance(step, LargestOfWindows) and steps and isinstance(steps[-1], Rectifier):
            steps.insert(-1, step)
        else:
            steps.append(step)
    # What is kept for the way back must not be overwritten: these work in the memory of a layer's output.
    for place, step in enumerate(steps):
        if isinstance(step, (Rectifier, Tanh)) and not (place and isinstance(steps[place - 1], _OWN_MEMORY)):
            steps[place] = Differentiated(nn.ReLU() if isinstance(step, Rectifier) else nn.Tanh())
    return steps if any(step.names for step in steps) else None


_OWN_MEMORY = (Linear, Convolution, GroupNorm, LargestOfWindows)  # they need their outputs no more on the way back


def _leaves(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential:
        return [leaf for name, child in module.named_children() for leaf in _leaves(child, f"{prefix}{name}.")]
    return [(prefix, module)]


def _step(module: nn.Module, names: tuple[str, ...], numbers: torch.dtype) -> Step | None:
    own = {name.rpartition(".")[2] for name in names}
    if not names:
        if not is_of_torch(module):
            return None
        if type(module) is nn.ReLU:
            return Rectifier()
        if type(module) is nn.Tanh:
            return Tanh()
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            return Flattened()
        if type(module) is nn.MaxPool2d and not module.return_indices:
            kernel, stride, padding, dilation = map(
                _pair, (module.kernel_size, module.stride, module.padding, module.dilation)
            )
            return LargestOfWindows(kernel, stride, padding, dilation, module.ceil_mode)
        if getattr(module, "inplace", False):
            module = copy(module)
            setattr(module, "inplace", False)  # noqa: B010
        return Differentiated(module)
    if not own <= {"weight", "bias"} or len(own) != len(names):
        return None
    if type(module) is nn.Linear:
        return Linear(names)
    if type(module) is nn.GroupNorm and module.affine:
        return GroupNorm(names, module.num_groups, module.eps)
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if plain and _is_pair(module.stride) and _is_pair(module.padding):
            return Convolution(names, module.stride, module.padding, numbers)
    return None


def _is_pair(sides: Any) -> TypeGuard[Pair]:
    return isinstance(sides, tuple) and len(sides) == 2


def _pair(sides: Any) -> Pair:
    return (sides[0], sides[1]) if _is_pair(sides) else (sides, sides)
