"""The layers of one model, forward and back, by the library's own products; gradients go straight to where they belong.

Images keep their channels last in memory, which oneDNN's convolutions take as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from h2fdp.training.direct.record_gradients import Given, Products, RecordGradients
from h2fdp.training.direct.target import Target
from h2fdp.training.gradients.convolution import Windows, records_gradients
from h2fdp.training.gradients.per_example import ExplicitGradients, ghost_is_cheaper

_OPS = torch.ops.aten
Pair = tuple[int, int]


class Step(Protocol):
    """A step of a chain, on the records (W, ...) of one device.

    Attributes:
        names: of its parameters.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        """The output, and what the way back needs."""
        ...

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        """The gradient in the input by that in the output, where it `goes_on`; parameters' gradients to the target."""
        ...


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b."""

    names: tuple[str, ...]

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        rows, weights = x.reshape(-1, x.shape[-1]), parameters[0]
        y = torch.addmm(parameters[1], rows, weights.t()) if len(self.names) > 1 else rows.mm(weights.t())
        return y.view(*x.shape[:-1], -1), (rows, x.shape)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        (rows, shape), own = saved, delta.reshape(-1, delta.shape[-1])
        found = own.mm(parameters[0]).view(shape) if goes_on else None  # before the target, which may be the weights
        target.add_product(0, own, rows)
        if len(self.names) > 1:
            target.add(1, own.sum(dim=0))
        return found

    def back_by_record(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[RecordGradients]]:
        """As `back`, but with the parameters' gradients record by record."""
        (rows, shape), own = saved, delta.reshape(-1, delta.shape[-1])
        found = own.mm(parameters[0]).view(shape) if goes_on else None
        a, own = rows.view(shape[0], -1, rows.shape[1]), own.view(shape[0], -1, own.shape[1])
        if ghost_is_cheaper(a.shape[1], a.shape[2], own.shape[2]):
            weight: RecordGradients = Products(0, a, own)
        else:
            written = torch.bmm(own.transpose(1, 2), a)
            weight = Given(0, ExplicitGradients(written.flatten(1)[None]), tuple(written.shape[1:]), (0, 1))
        biases = [Given(1, ExplicitGradients(own.sum(dim=1)[None]))] if len(self.names) > 1 else []
        return found, [weight, *biases]


@dataclass(frozen=True)
class Convolution:
    """Of images, without groups or dilation, by oneDNN; factors of products are rounded to `numbers`."""

    names: tuple[str, ...]
    stride: Pair
    padding: Pair
    numbers: torch.dtype = torch.float32

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        weights = parameters[0].contiguous(memory_format=torch.channels_last).to(self.numbers)
        biases = parameters[1].to(self.numbers) if len(self.names) > 1 else None
        rounded = x.to(self.numbers)
        y = nn.functional.conv2d(rounded, weights, biases, self.stride, self.padding)
        return y.to(x.dtype), (rounded, weights)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        biased = len(self.names) > 1
        found = self._gradients(saved, delta, (goes_on, True, biased))
        for place in range(len(self.names)):
            gradient = found[place + 1]
            assert gradient is not None, "it was asked for"
            target.add(place, gradient)
        return found[0]

    def back_by_record(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[RecordGradients]]:
        """As `back`, but with the parameters' gradients record by record."""
        # What is added is what was measured: neither is rounded any further.
        x, rows = saved[0].to(delta.dtype), delta.permute(0, 2, 3, 1).flatten(1, 2)
        outputs, channels, *kernel = parameters[0].shape
        windows = Windows(_pair(kernel), self.stride, self.padding)
        gradients = records_gradients(windows, x[None], rows[None])
        weight = Given(0, gradients, (outputs, *kernel, channels), (0, 3, 1, 2))
        biases = [Given(1, ExplicitGradients(rows.sum(dim=1)[None]))] if len(self.names) > 1 else []
        found = self._gradients(saved, delta, (True, False, False))[0] if goes_on else None
        return found, [weight, *biases]

    def _gradients(self, saved: Any, delta: Tensor, asked: tuple[bool, bool, bool]) -> tuple[Tensor | None, ...]:
        """In the input, the weights and the biases, those that are asked for."""
        x, weights = saved
        found: tuple[Tensor | None, ...] = _OPS.convolution_backward(
            delta.to(self.numbers),
            x,
            weights,
            [len(weights)] if asked[2] else None,
            self.stride,
            self.padding,
            (1, 1),
            False,
            (0, 0),
            1,
            asked,
        )
        return tuple(None if each is None else each.to(delta.dtype) for each in found)


@dataclass(frozen=True)
class GroupNorm:
    """y = w xhat + b, where xhat has mean 0 and variance 1 in each record's groups of channels."""

    names: tuple[str, ...]
    groups: int
    eps: float

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        x = x.contiguous(memory_format=_format(x))
        y, mean, scale = _OPS.native_group_norm(x, *parameters, *_sizes(x), self.groups, self.eps)
        return y, (x, mean, scale)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        x, mean, scale = saved
        delta = delta.contiguous(memory_format=_format(x))
        found: tuple[Tensor | None, Tensor, Tensor] = _OPS.native_group_norm_backward(
            delta, x, mean, scale, parameters[0], *_sizes(x), self.groups, (goes_on, True, True)
        )
        target.add(0, found[1])
        target.add(1, found[2])
        return found[0]

    def back_by_record(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, goes_on: bool
    ) -> tuple[Tensor | None, list[RecordGradients]]:
        """As `back`, but with the parameters' gradients record by record."""
        x, mean, scale = saved
        delta = delta.contiguous(memory_format=_format(x))
        biases, products = (each.flatten(2).sum(dim=2) if each.dim() > 2 else each for each in (delta, delta * x))
        # Of a group's channels: the sum of delta (x - mean) scale.
        grouped = (len(x), self.groups, -1)
        moved = torch.addcmul(products.view(grouped), biases.view(grouped), mean.view(grouped), value=-1.0)
        gradients = moved.mul_(scale.view(grouped)).view(len(x), -1), biases
        found = None
        if goes_on:
            found = _OPS.native_group_norm_backward(
                delta, x, mean, scale, parameters[0], *_sizes(x), self.groups, (True, False, False)
            )[0]
        return found, [Given(place, ExplicitGradients(each[None])) for place, each in enumerate(gradients)]


Layer = Linear | Convolution | GroupNorm  # those with parameters


@dataclass(frozen=True)
class Rectifier:
    """max(x, 0), in the memory of x."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        y = x.relu_()
        return y, y

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        found: Tensor = _OPS.threshold_backward.grad_input(delta, saved, 0, grad_input=delta)
        return found


@dataclass(frozen=True)
class Tanh:
    """tanh x, in the memory of x."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        y = x.tanh_()
        return y, y

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        found: Tensor = _OPS.tanh_backward.grad_input(delta, saved, grad_input=delta)
        return found


@dataclass(frozen=True)
class Flattened:
    """(W, everything else), in the order of channels, rows, columns."""

    names: tuple[str, ...] = ()

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        return x.contiguous().flatten(1), (x.shape, _format(x))

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        shape, memory_format = saved
        return delta.reshape(shape).contiguous(memory_format=memory_format)


@dataclass(frozen=True)
class LargestOfWindows:
    """Max pooling."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool
    names: tuple[str, ...] = ()

    @property
    def _geometry(self) -> tuple[Any, ...]:
        return self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        y, places = _OPS.max_pool2d_with_indices(x, *self._geometry)
        return y, (x, places)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        x, places = saved
        found: Tensor = _OPS.max_pool2d_with_indices_backward(delta, x, *self._geometry, places)
        return found


@dataclass(frozen=True)
class Differentiated:
    """Anything without parameters, by autograd."""

    module: nn.Module
    names: tuple[str, ...] = ()

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y: Tensor = self.module(leaf)
        return y.detach(), (leaf, y)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        leaf, y = saved
        found: Tensor = torch.autograd.grad(y, leaf, delta)[0]
        return found


def _format(x: Tensor) -> torch.memory_format:
    """How the channels of x lie in memory."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _pair(sides: Sequence[int]) -> Pair:
    height, width = sides
    return height, width


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Records, channels, numbers of a channel."""
    return len(x), x.shape[1], x[0, 0].numel()
