"""The steps of a chain over a stack of devices that each have their own parameters: forward, and back by hand.

Images keep their channels last in memory, which oneDNN's convolutions take as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    GhostGradients,
    PerExampleGradients,
    Target,
    ghost_is_cheaper,
)

_OPS = torch.ops.aten
Parameters = Mapping[str, Tensor]  # (n, *shape) of each, by name


class Step(Protocol):
    """A step of a chain, for n devices with W records each.

    Attributes:
        names: of its parameters.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        """The output (n, W, ...), and what the way back needs."""
        ...

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor | None:
        """The gradient in the input by that in the output, where it `goes_on`; sums of parameters' to the target."""
        ...


class Layer(Step, Protocol):
    """A step that has parameters."""

    def back_by_record(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[PerExampleGradients]]:
        """As `back`, but with the parameters' gradients record by record."""
        ...


@dataclass(frozen=True)
class Linear:
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

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor | None:
        found = self._input_gradient(parameters, saved, delta) if goes_on else None  # before the target, maybe weights
        delta = delta.flatten(1, -2)
        target.add_product(self.names[0], delta, saved.flatten(1, -2))
        if len(self.names) > 1:
            target.add(self.names[1], delta.sum(dim=1))
        return found

    def back_by_record(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[PerExampleGradients]]:
        found = self._input_gradient(parameters, saved, delta) if goes_on else None
        stack, width = saved.shape[:2]
        a, delta = saved.reshape(stack, width, -1, saved.shape[-1]), delta.reshape(stack, width, -1, delta.shape[-1])
        cheap = ghost_is_cheaper(a.shape[2], a.shape[3], delta.shape[3])
        weight: PerExampleGradients = (
            GhostGradients(a, delta) if cheap else ExplicitGradients((delta.transpose(2, 3) @ a).flatten(2))
        )
        return found, [weight, ExplicitGradients(delta.sum(dim=2))] if len(self.names) > 1 else [weight]

    def _input_gradient(self, parameters: Parameters, x: Tensor, delta: Tensor) -> Tensor:
        weights, rows = parameters[self.names[0]], delta.flatten(1, -2).transpose(1, 2)
        if len(x) == 1:
            return rows[0].t().mm(weights[0]).view(x.shape)
        return torch.bmm(weights.transpose(1, 2), rows).transpose(1, 2).view(x.shape)


@dataclass(frozen=True)
class GroupNorm:
    """y = w xhat + b, where xhat has mean 0 and variance 1 in each record's groups of channels."""

    names: tuple[str, ...]
    groups: int
    eps: float

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        kept = []
        outputs = []
        for own, weight, bias in zip(x, *_own(self, parameters), strict=True):
            own = own.contiguous(memory_format=_format(own))
            y, mean, scale = _OPS.native_group_norm(own, weight, bias, *_sizes(own), self.groups, self.eps)
            outputs.append(y)
            kept.append((own, mean, scale, weight))
        return stacked(outputs), kept

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor | None:
        inputs, weights, biases = zip(*self._gradients(saved, delta, (goes_on, True, True)), strict=True)
        target.add(self.names[0], torch.stack(weights))
        target.add(self.names[1], torch.stack(biases))
        return stacked(inputs) if goes_on else None

    def back_by_record(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[PerExampleGradients]]:
        weights, biases = [], []
        for (x, mean, scale, _), own in zip(saved, delta, strict=True):
            bias, products = (each.flatten(2).sum(dim=2) if each.dim() > 2 else each for each in (own, own * x))
            # Of a group's channels: the sum of delta (x - mean) scale.
            grouped = (len(x), self.groups, -1)
            moved = torch.addcmul(products.view(grouped), bias.view(grouped), mean.view(grouped), value=-1.0)
            weights.append(moved.mul_(scale.view(grouped)).view(len(x), -1))
            biases.append(bias)
        found = None
        if goes_on:
            found = stacked([each[0] for each in self._gradients(saved, delta, (True, False, False))])
        return found, [ExplicitGradients(torch.stack(each)) for each in (weights, biases)]

    def _gradients(self, saved: Any, delta: Tensor, asked: tuple[bool, bool, bool]) -> list[tuple[Any, Any, Any]]:
        """Device by device: in the input, the weights and the biases, those that are asked for."""
        return [
            _OPS.native_group_norm_backward(
                own.contiguous(memory_format=_format(x)), x, mean, scale, weight, *_sizes(x), self.groups, asked
            )
            for (x, mean, scale, weight), own in zip(saved, delta, strict=True)
        ]


@dataclass(frozen=True)
class Rectifier:
    """max(x, 0), in the memory of x."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        y = x.relu_()
        return y, y

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        found: Tensor = _OPS.threshold_backward.grad_input(delta, saved, 0, grad_input=delta)
        return found


@dataclass(frozen=True)
class Tanh:
    """tanh x, in the memory of x."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        y = x.tanh_()
        return y, y

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        found: Tensor = _OPS.tanh_backward.grad_input(delta, saved, grad_input=delta)
        return found


@dataclass(frozen=True)
class Flattened:
    """(n, W, everything else), in the order of channels, rows, columns."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        return x.flatten(2), (x.shape, _format(x[0]))

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        shape, memory_format = saved
        records = delta.reshape(shape).flatten(0, 1)
        return records.contiguous(memory_format=memory_format).view(shape)


@dataclass(frozen=True)
class LargestOfWindows:
    """Max pooling.

    Attributes:
        geometry: kernel, stride, padding, dilation, and whether windows may hang over the border.
    """

    geometry: tuple[Any, ...]
    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        records = x.flatten(0, 1)
        y, places = _OPS.max_pool2d_with_indices(records, *self.geometry)
        return y.view(*x.shape[:2], *y.shape[1:]), (records, places)

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        records, places = saved
        found: Tensor = _OPS.max_pool2d_with_indices_backward(delta.flatten(0, 1), records, *self.geometry, places)
        return found.view(*delta.shape[:2], *found.shape[1:])


@dataclass(frozen=True)
class Probabilities:
    """p = softmax of (n, W, classes), and its way back in closed form, p (g - sum_c g_c p_c).

    Outputs lie in memory as those of `Linear`.
    """

    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        y = torch.softmax(x.transpose(1, 2), dim=1).transpose(1, 2)
        return y, y

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        across = delta.transpose(1, 2), saved.transpose(1, 2)
        found: Tensor = _OPS._softmax_backward_data(*across, 1, saved.dtype)
        return found.transpose(1, 2)


@dataclass(frozen=True)
class Differentiated:
    """Anything without parameters, by autograd."""

    function: Callable[[Tensor], Tensor]
    names: tuple[str, ...] = ()

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = self.function(leaf)
        return y.detach(), (leaf, y)

    def back(self, parameters: Parameters, saved: Any, delta: Tensor, target: Target, goes_on: bool) -> Tensor:
        leaf, y = saved
        found: Tensor = torch.autograd.grad(y, leaf, delta)[0]
        return found


def stacked(records: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """(n, W, ...) the records (W, ...) of devices, without a copy for one; channels stay where they are in memory."""
    whole = records[0] if len(records) == 1 else torch.cat(list(records))
    return whole.view(len(records), -1, *whole.shape[1:])


def _own(step: Step, parameters: Parameters) -> list[Tensor]:
    return [parameters[name] for name in step.names]


def _format(records: Tensor) -> torch.memory_format:
    """How the channels of records (W, ...) lie in memory."""
    last = records.dim() == 4 and records.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _sizes(records: Tensor) -> tuple[int, int, int]:
    """Records, channels, numbers of a channel."""
    return len(records), records.shape[1], records[0, 0].numel()
