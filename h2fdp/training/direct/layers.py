"""The layers of one model, forward and back, by the library's own products; gradients go straight to where they belong.

Images keep their channels last in memory, which oneDNN's convolutions take as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

_OPS = torch.ops.aten
Pair = tuple[int, int]


@dataclass(frozen=True)
class Target:
    """Where the gradients of a layer's parameters go: held = kept held + factor gradient.

    Attributes:
        held: a view for each parameter.
        kept: 0 to overwrite what is held, 1 to add to it.
    """

    held: Sequence[Tensor]
    kept: float
    factor: float

    def add_product(self, place: int, left: Tensor, right: Tensor) -> None:
        """The gradient left^T right of a matrix."""
        self.held[place].addmm_(left.t(), right, beta=self.kept, alpha=self.factor)

    def add(self, place: int, gradient: Tensor) -> None:
        """A gradient as it is."""
        if self.kept:
            self.held[place].add_(gradient, alpha=self.factor)
        else:
            torch.mul(gradient, self.factor, out=self.held[place])


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


@dataclass(frozen=True)
class Convolution:
    """Of images, without groups or dilation, by oneDNN."""

    names: tuple[str, ...]
    stride: Pair
    padding: Pair

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        weights = parameters[0].contiguous(memory_format=torch.channels_last)
        biases = parameters[1] if len(self.names) > 1 else None
        return nn.functional.conv2d(x, weights, biases, self.stride, self.padding), (x, weights)

    def back(
        self, parameters: Sequence[Tensor], saved: Any, delta: Tensor, target: Target, goes_on: bool
    ) -> Tensor | None:
        (x, weights), biased = saved, len(self.names) > 1
        found: tuple[Tensor | None, Tensor, Tensor] = _OPS.convolution_backward(
            delta,
            x,
            weights,
            [len(weights)] if biased else None,
            self.stride,
            self.padding,
            (1, 1),
            False,
            (0, 0),
            1,
            (goes_on, True, biased),
        )
        for place in range(len(self.names)):
            gradient = found[place + 1]
            assert gradient is not None, "it was asked for"
            target.add(place, gradient)
        return found[0]


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


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Records, channels, numbers of a channel."""
    return len(x), x.shape[1], x[0, 0].numel()
