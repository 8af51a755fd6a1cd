"""Modules that are chains of layers, over a stack of devices that each have their own parameters: forward, and back.

The layers with parameters are Linear, Conv2d and GroupNorm; between them are torch's own ones without parameters.
Images keep their channels last in memory, which oneDNN's convolutions take as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from h2fdp.data.statistics import OfRecords, Statistic
from h2fdp.training.gradients.convolution import Convolution, Windows
from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    GhostGradients,
    Gradients,
    Parameters,
    Step,
    Summed,
    ghost_is_cheaper,
    stacked,
)

_OPS = torch.ops.aten
# What gives each number the same bits wherever it stands in a tensor. Sigmoid, SiLU, ELU, Softplus and others do not:
# torch computes the last few numbers of a tensor, those that fill no vector of the processor, by another routine.
_EXACT_ANYWHERE = (nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.Tanh, nn.Identity)


@dataclass(frozen=True)
class Linear(Step):
    """y = x W^T + b, for inputs (n, W, ..., K).

    Outputs of several devices lie in memory as (n, O, W): batched products that way round were two to four times faster
    on a CPU, and a softmax over a dimension that is not the last one ten times. Large layers of one device were half as
    fast that way.
    """

    names: tuple[str, ...]

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        weights, *biases = _own(self, parameters)
        if len(x) == 1:
            rows = x.flatten(0, -2)
            y = torch.addmm(biases[0][0], rows, weights[0].t()) if biases else rows.mm(weights[0].t())
            return y.view(*x.shape[:-1], -1), x
        rows = x.flatten(1, -2).transpose(1, 2)
        y = torch.baddbmm(biases[0][:, :, None], weights, rows) if biases else torch.bmm(weights, rows)
        y = y.transpose(1, 2)
        return y if x.dim() == 3 else y.view(*x.shape[:-1], -1), x

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        below = self._input_gradient(parameters, saved, delta) if goes_on else None
        return below, self.gradients(saved, delta, by_record)

    def gradients(self, x: Tensor, delta: Tensor, by_record: bool = True) -> Gradients:
        """The gradients in weights and biases of inputs x (n, W, ..., K)."""
        stack, width = x.shape[:2]
        a, each = x.reshape(stack, width, -1, x.shape[-1]), delta.reshape(stack, width, -1, delta.shape[-1])
        ghost = not by_record or ghost_is_cheaper(a.shape[2], a.shape[3], each.shape[3])
        weight = GhostGradients(a, each) if ghost else ExplicitGradients((each.transpose(2, 3) @ a).flatten(2))
        if len(self.names) == 1:
            return [weight]
        bias = ExplicitGradients(each.sum(dim=2)) if by_record else Summed(delta.flatten(1, -2).sum(dim=1))
        return [weight, bias]

    def _input_gradient(self, parameters: Parameters, x: Tensor, delta: Tensor) -> Tensor:
        weights, rows = parameters[self.names[0]], delta.flatten(1, -2).transpose(1, 2)
        if len(x) == 1:
            return rows[0].t().mm(weights[0]).view(x.shape)
        return torch.bmm(weights.transpose(1, 2), rows).transpose(1, 2).view(x.shape)


@dataclass(frozen=True)
class GroupNorm(Step):
    """y = w xhat + b, where xhat has mean 0 and variance 1 in each record's groups of channels."""

    names: tuple[str, ...]
    groups: int
    eps: float

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        kept = []
        outputs = []
        for own, weight, bias in zip(x, *_own(self, parameters), strict=True):
            own = own.contiguous(memory_format=torch.contiguous_format if own.is_cuda else _format(own))  # its kernel
            y, mean, scale = _OPS.native_group_norm(own, weight, bias, *_sizes(own), self.groups, self.eps)
            outputs.append(y)
            kept.append((own, mean, scale, weight))
        return stacked(outputs), kept

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        if not by_record:
            inputs, *sums = zip(*self._gradients(saved, delta, (goes_on, True, True)), strict=True)
            return stacked(inputs) if goes_on else None, [Summed(torch.stack(each)) for each in sums]
        weights, biases = [], []
        for (x, mean, scale, _), own in zip(saved, delta, strict=True):
            bias, products = (each.flatten(2).sum(dim=2) if each.dim() > 2 else each for each in (own, own * x))
            # Of a group's channels: the sum of delta (x - mean) scale.
            grouped = (len(x), self.groups, -1)
            moved = torch.addcmul(products.view(grouped), bias.view(grouped), mean.view(grouped), value=-1.0)
            weights.append(moved.mul_(scale.view(grouped)).view(len(x), -1))
            biases.append(bias)
        gradient = None
        if goes_on:
            gradient = stacked([each[0] for each in self._gradients(saved, delta, (True, False, False))])
        return gradient, [ExplicitGradients(torch.stack(each)) for each in (weights, biases)]

    def _gradients(self, saved: Any, delta: Tensor, asked: tuple[bool, bool, bool]) -> list[tuple[Any, Any, Any]]:
        """Device by device: in the input, the weights and the biases, those that are asked for."""
        return [
            _OPS.native_group_norm_backward(
                own.contiguous(memory_format=_format(x)), x, mean, scale, weight, *_sizes(x), self.groups, asked
            )
            for (x, mean, scale, weight), own in zip(saved, delta, strict=True)
        ]


# Forward and back, in the memory of what they are given.
_IN_PLACE: Mapping[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu_, lambda delta, y: _OPS.threshold_backward.grad_input(delta, y, 0, grad_input=delta)),
    nn.Tanh: (torch.tanh_, lambda delta, y: _OPS.tanh_backward.grad_input(delta, y, grad_input=delta)),
}


@dataclass(frozen=True)
class Activation(Step):
    """max(x, 0) or tanh x, in the memory of x."""

    kind: type[nn.Module]
    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        y = _IN_PLACE[self.kind][0](x)
        return y, y

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        return _IN_PLACE[self.kind][1](delta, saved), []


class Flattened(Step):
    """(n, W, everything else), in the order of channels, rows, columns."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        return x.flatten(2), (x.shape, _format(x[0]))

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        shape, memory_format = saved
        records = delta.reshape(shape).flatten(0, 1)
        return records.contiguous(memory_format=memory_format).view(shape), []


@dataclass(frozen=True)
class Differentiated(Step):
    """Anything without parameters, by autograd."""

    function: Callable[[Tensor], Tensor]
    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = self.function(leaf)
        return y.detach(), (leaf, y)

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        leaf, y = saved
        return torch.autograd.grad(y, leaf, delta)[0], []


def _own(step: Step, parameters: Parameters) -> list[Tensor]:
    return [parameters[name] for name in step.names]


def _format(records: Tensor) -> torch.memory_format:
    """The memory format of the channels of records (W, ...)."""
    last = records.dim() == 4 and records.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _sizes(records: Tensor) -> tuple[int, int, int]:
    """Records, channels, numbers of a channel."""
    return len(records), records.shape[1], records[0, 0].numel()


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
    own_memory = False  # whether the step before needs its output no more on the way back
    pieces = leaves(module)
    for place, (name, part) in enumerate(pieces):
        if type(part) is nn.ReLU and place + 1 < len(pieces) and type(pieces[place + 1][1]) is nn.MaxPool2d:
            pieces[place : place + 2] = pieces[place + 1], pieces[place]
            name, part = pieces[place]
        step = _step(part, tuple(f"{name}.{own}".lstrip(".") for own, _ in part.named_parameters()), numbers)
        if step is None:
            return None
        if type(part) in _IN_PLACE and own_memory:
            step = Activation(type(part))
        steps.append(step)
        own_memory = bool(step.names) or type(part) is nn.MaxPool2d
    if _ends_in_probabilities(module):
        steps[-1] = Differentiated(probabilities)
    return steps if any(step.names for step in steps) else None


def leaves(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """The parts of nested sequences, in their order, with their names in the whole module."""
    if not is_sequence(module):
        return [(prefix, module)]
    return [leaf for name, child in module.named_children() for leaf in leaves(child, f"{prefix}.{name}".lstrip("."))]


def is_sequence(module: nn.Module) -> bool:
    """Whether it runs its parts one after the other, as a subclass without a `forward` of its own does, too.

    >>> class Net(nn.Sequential):
    ...     def __init__(self) -> None:
    ...         super().__init__(nn.Flatten(), nn.Linear(4, 2))
    >>> is_sequence(Net()), is_sequence(nn.Linear(4, 2))
    (True, False)
    """
    kind = type(module)
    return isinstance(module, nn.Sequential) and all(
        getattr(kind, name) is getattr(nn.Sequential, name) for name in ("forward", "__call__")
    )


def is_trained_as_it_is(module: nn.Module) -> bool:
    """Whether its layers say all: no hooks, which no layer here would run, no frozen parameters and no shared ones."""
    parameters = [name for name, each in module.named_parameters(remove_duplicate=False) if each.requires_grad]
    hooked = any(_is_hooked(part) for part in module.modules())
    return not hooked and parameters == [name for name, _ in module.named_parameters()]


def flattens(module: nn.Module) -> bool:
    """Whether it makes a vector of each record."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def _ends_in_probabilities(module: nn.Module) -> bool:
    """Whether a Softmax over classes follows a Linear layer, whose outputs it takes as (records, classes)."""
    if not isinstance(module, nn.Sequential) or not is_sequence(module) or len(module) < 2:
        return False
    last, before = module[-1], module[-2]
    return type(last) is nn.Softmax and last.dim in (1, -1) and type(before) is nn.Linear


def _step(module: nn.Module, names: tuple[str, ...], numbers: torch.dtype) -> Step | None:
    """The step that runs a layer over a stack; None for a layer, or a form of it, that is not supported."""
    if not names:
        # A user's own would be handed the records of a batch at once here. Elsewhere it sees them one by one where each
        # is clipped, so that it cannot couple them.
        ours = type(module).__module__.partition(".")[0] == "torch" or (
            isinstance(module, OfRecords) and isinstance(module.statistic, Statistic)
        )
        return _without_parameters(module) if ours else None
    if not {name.rpartition(".")[2] for name in names} <= {"weight", "bias"}:  # reparametrised
        return None
    if type(module) is nn.Linear:
        return Linear(names)
    if type(module) is nn.GroupNorm and module.affine:
        return GroupNorm(names, module.num_groups, module.eps)
    if type(module) is nn.Conv2d and (windows := windows_of(module)) is not None:
        return Convolution(names, windows, numbers)
    return None


def windows_of(layer: nn.Conv2d) -> Windows | None:
    """The geometry of a convolution; None with groups, dilation, or padding in words."""
    plain = layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
    if not plain or isinstance(layer.padding, str):
        return None
    return Windows(_pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding))


def _without_parameters(module: nn.Module) -> Step:
    if flattens(module):
        return Flattened()
    if getattr(module, "inplace", False):  # it would overwrite what autograd goes back through
        module = copy(module)
        setattr(module, "inplace", False)  # noqa: B010
    if type(module) in _EXACT_ANYWHERE:
        return Differentiated(module)
    # Nor does it matter to these which records are computed with one.
    alone = type(module) in (nn.Softmax, nn.MaxPool2d, OfRecords)
    return Differentiated(partial(_all_records if alone else _device_by_device, module))


def probabilities(x: Tensor) -> Tensor:
    """The softmax of (n, W, classes), which lie in memory as the outputs of `Linear`: (n, classes, W)."""
    return torch.softmax(x.transpose(1, 2), dim=1).transpose(1, 2)


def _is_hooked(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in hooks)


def _pair(sides: Any) -> tuple[int, int]:
    height, width = sides if isinstance(sides, tuple) else (sides, sides)
    return height, width


def _device_by_device(module: nn.Module, x: Tensor) -> Tensor:
    # A copy: it may work in place. On a GPU torch 2.11 goes back through AvgPool2d wrongly where channels are last.
    kept = torch.contiguous_format if x.is_cuda else torch.preserve_format
    return torch.stack([module(own.clone(memory_format=kept)) for own in x.unbind()])


def _all_records(module: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = module(x.flatten(0, 1))
    return output.view(*x.shape[:2], *output.shape[1:])
