"""Layers over a stack of devices that each have their own parameters: Linear, GroupNorm, and Softmax over classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    GhostGradients,
    PerExampleGradients,
    ghost_is_cheaper,
)


class Layer(Protocol):
    """One layer of a chain; n devices, W records of each."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        """The output (n, W, ...), differentiable in x (n, W, ...), and what the gradients need later.

        Args:
            parameters: (n, *shape) of each parameter, in the order of the module's `named_parameters`.
        """
        ...

    def sums(self, saved: Any, delta: Tensor) -> list[Tensor]:
        """For each parameter (n, *shape): the gradients summed over records.

        Args:
            saved: from `forward`.
            delta: (n, W, ...) gradient in the output.
        """
        ...

    def record_gradients(self, saved: Any, delta: Tensor) -> list[PerExampleGradients]:
        """For each parameter: the gradients record by record."""
        ...


class StackedLinear:
    """y = x W^T + b, for inputs (n, W, ..., K).

    Outputs lie in memory as (n, O, W): batched products that way round were two to four times faster on a CPU, and a
    softmax over a dimension that is not the last one ten times.
    """

    def __init__(self, biased: bool) -> None:
        self._biased = biased

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.flatten(1, -2).transpose(1, 2)
        if self._biased:
            output = torch.baddbmm(parameters[1][:, :, None], parameters[0], rows)
        else:
            output = torch.bmm(parameters[0], rows)
        output = output.transpose(1, 2)
        return output if x.dim() == 3 else output.view(*x.shape[:-1], -1), x.detach()

    def sums(self, saved: Tensor, delta: Tensor) -> list[Tensor]:
        delta = delta.flatten(1, -2)
        weight = torch.bmm(delta.transpose(1, 2), saved.flatten(1, -2))
        return [weight, delta.sum(dim=1)] if self._biased else [weight]

    def record_gradients(self, saved: Tensor, delta: Tensor) -> list[PerExampleGradients]:
        stack, width = saved.shape[:2]
        a, delta = saved.reshape(stack, width, -1, saved.shape[-1]), delta.reshape(stack, width, -1, delta.shape[-1])
        cheap = ghost_is_cheaper(a.shape[2], a.shape[3], delta.shape[3])
        weight: PerExampleGradients = (
            GhostGradients(a, delta) if cheap else ExplicitGradients((delta.transpose(2, 3) @ a).flatten(2))
        )
        return [weight, ExplicitGradients(delta.sum(dim=2))] if self._biased else [weight]


@dataclass(frozen=True)
class StackedGroupNorm:
    """y = w xhat + b, channel by channel, where xhat has mean 0 and variance 1 in each record's groups of channels."""

    groups: int
    eps: float

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        standardised = nn.functional.group_norm(x.flatten(0, 1), self.groups, eps=self.eps).view(x.shape)
        channels = (x.shape[0], 1, x.shape[2], *[1] * (x.dim() - 3))
        weight, bias = (each.view(channels) for each in parameters)
        return standardised * weight + bias, standardised.detach()

    def sums(self, saved: Tensor, delta: Tensor) -> list[Tensor]:
        return [each.gradients.sum(dim=1) for each in self._written(saved, delta)]

    def record_gradients(self, saved: Tensor, delta: Tensor) -> list[PerExampleGradients]:
        return list(self._written(saved, delta))

    def _written(self, saved: Tensor, delta: Tensor) -> tuple[ExplicitGradients, ExplicitGradients]:
        return _by_channel(delta * saved), _by_channel(delta)


def _by_channel(values: Tensor) -> ExplicitGradients:
    """(n, W, C, ...) summed over what follows the channels, if anything does."""
    return ExplicitGradients(values if values.dim() == 3 else values.flatten(3).sum(dim=3))


class Probabilities:
    """p = softmax of (n, W, classes), and its way back in closed form, p (g - sum_c g_c p_c), without autograd.

    Outputs lie in memory as those of `StackedLinear`.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """(n, W, classes) probabilities."""
        return torch.softmax(x.transpose(1, 2), dim=1).transpose(1, 2)

    def back(self, output: Tensor, delta: Tensor) -> Tensor:
        """(n, W, classes) the gradient in the input, from that in the output."""
        across = delta.transpose(1, 2), output.transpose(1, 2)
        found: Tensor = torch.ops.aten._softmax_backward_data(*across, 1, output.dtype)
        return found.transpose(1, 2)
