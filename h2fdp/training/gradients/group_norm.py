"""nn.GroupNorm over a stack of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from h2fdp.training.gradients.per_example import ExplicitGradients, PerExampleGradients


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
