"""What a stacked engine needs to know of a model: the gradients of a stack of devices, each over its own records."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from h2fdp.training.gradients.chain import chain_of
from h2fdp.training.gradients.functional import FunctionalGradients
from h2fdp.training.gradients.layered import LayeredGradients


class GradientRule(Protocol):
    """Weighted sums of the gradients of the cross-entropy, device by device."""

    def sums(self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        """sum_r shares_r g_r of each device, where g_r is the gradient of its r-th record.

        No device's sum depends on another device of the stack, to the bit, as long as there are two or more.

        Args:
            models: (n, M) where each device stands.
            x: (n, W, *shape) records as the model sees them.
            y: (n, W) labels.
            shares: (n, W) 1 / |xi_i| for a drawn record, 0 for padding.

        Returns:
            (n, M); where the rule has a clip norm G, each g_r is scaled down to it first.
        """
        ...


def gradient_rule(module: nn.Module, record_norm: float | None) -> GradientRule:
    """The fastest rule for a module; `record_norm` is G where each record's gradient is clipped."""
    chain = chain_of(module)
    if chain is None:
        return FunctionalGradients(module, record_norm)
    return LayeredGradients(module, chain, record_norm)


def is_layered(module: nn.Module) -> bool:
    """Whether the module is a chain of layers whose gradients are written out."""
    return chain_of(module) is not None
