"""What a stacked engine needs to know of a model: the gradients of a stack of devices, each over its own records."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from h2fdp.training.gradients.chain import chain_of
from h2fdp.training.gradients.functional import FunctionalGradients
from h2fdp.training.gradients.layered import LayeredGradients
from h2fdp.training.local_objective import FeatureComparison
from h2fdp.training.losses import CROSS_ENTROPY, Loss


class GradientRule(Protocol):
    """Weighted sums of the gradients of records' losses, device by device."""

    def sums(
        self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor, others: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """sum_r shares_r g_r of each device, where g_r is the gradient of its r-th record.

        No device's sum depends on another device of the stack, to the bit, as long as there are two or more.

        Args:
            models: (n, M) where each device stands.
            x: (n, W, *shape) records as the model sees them.
            y: (n, W) labels.
            shares: (n, W) 1 / |xi_i| for a drawn record, 0 for padding.
            others: (n, M) the models that each device received and had before, for objectives that compare.

        Returns:
            (n, M); where the rule has a clip norm G, each g_r is scaled down to it first.
        """
        ...


def gradient_rule(
    module: nn.Module,
    record_norm: float | None,
    loss: Loss = CROSS_ENTROPY,
    comparison: FeatureComparison | None = None,
) -> GradientRule:
    """The fastest rule for a module.

    Args:
        record_norm: G where each record's gradient is clipped.
        comparison: an objective that compares models, which rules out gradients that are written out.
    """
    chain = chain_of(module)
    if chain is None or comparison is not None:
        return FunctionalGradients(module, record_norm, loss, comparison)
    return LayeredGradients(module, chain, record_norm, loss)


def is_layered(module: nn.Module) -> bool:
    """Whether the module is a chain of layers whose gradients are written out."""
    return chain_of(module) is not None
