"""What a stacked engine needs to know of a model: the gradients of a stack of devices, each over its own records.

Chains of known layers have theirs written out (`layered.py`); of any other module torch.func makes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from h2fdp.training.clipping import Clipping, NormVotes
from h2fdp.training.gradients.chain import chain_of
from h2fdp.training.gradients.layered import LayeredGradients
from h2fdp.training.local_objective import FeatureComparison
from h2fdp.training.losses import CROSS_ENTROPY, Loss, RecordLoss


class GradientRule(Protocol):
    """Weighted sums of the gradients of records' losses, device by device."""

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
        votes: NormVotes | None = None,
    ) -> Tensor:
        """sum_r shares_r g_r of each device, where g_r is the gradient of its r-th record.

        No device's sum depends on another device of the stack, to the bit, as long as there are two or more.

        Args:
            models: (n, M) where each device stands.
            x: (n, W, *shape) records as the model sees them.
            y: (n, W) labels.
            shares: (n, W) 1 / |xi_i| for a drawn record, 0 for padding.
            others: (n, M) the models that each device received and had before, for objectives that compare.
            votes: where records' votes are counted, whose clip norm then takes the place of the rule's own.

        Returns:
            (n, M); where the rule has a clip norm G, each g_r is scaled down to it first.
        """
        ...


def gradient_rule(
    module: nn.Module,
    record_norm: float | None,
    loss: Loss = CROSS_ENTROPY,
    comparison: FeatureComparison | None = None,
    gamma: float | None = None,
) -> GradientRule:
    """The fastest rule for a module.

    Args:
        record_norm: G where each record's gradient is clipped.
        gamma: of records' gradients that are normalised; see `Clipping`.
        comparison: an objective that compares models, which rules out gradients that are written out.
    """
    chain = chain_of(module)
    if chain is None or comparison is not None:
        return FunctionalGradients(module, record_norm, loss, comparison, gamma)
    return LayeredGradients(module, chain, record_norm, loss, gamma)


def is_layered(module: nn.Module) -> bool:
    """Whether the module is a chain of layers whose gradients are written out."""
    return chain_of(module) is not None


_LAST_NUMBERS = 64  # a loop over vectors of a processor leaves fewer than these over


class FunctionalGradients:
    """See `GradientRule`. Clipped records' gradients are written out, those of one device at a time."""

    def __init__(
        self,
        module: nn.Module,
        record_norm: float | None,
        loss: Loss = CROSS_ENTROPY,
        comparison: FeatureComparison | None = None,
        gamma: float | None = None,
    ) -> None:
        self._losses = RecordLoss(module, loss, comparison)
        self._clipping = None if record_norm is None else Clipping(record_norm, "record", gamma=gamma)

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
        votes: NormVotes | None = None,
    ) -> Tensor:
        given = (models, x, y, shares, *(others or ()))
        if self._clipping is None:
            # Torch computes the last few numbers of a tensor by another routine than the rest: they are nobody's.
            nobody = -(-_LAST_NUMBERS // min(shares.shape[1], *self._losses.flat.sizes))
            padded = (torch.cat([each, each[-1:].expand(nobody, *each.shape[1:])]) for each in given)
            sums: Tensor = vmap(grad(self._sum))(*padded)
            return sums[: len(models)]
        found, clipping, norms = torch.empty_like(models), self._clipping, torch.empty_like(shares)
        if votes is not None:
            clipping = replace(clipping, norm=votes.norm)
        alike = (None,) * len(others or ())
        for device, own in enumerate(shares):
            fixed = () if others is None else (others[0][device], others[1][device])
            one_by_one = vmap(grad(self._record_loss), in_dims=(None, 0, 0, *alike))
            each = one_by_one(models[device], x[device], y[device], *fixed)
            if votes is not None:
                norms[device] = torch.linalg.vector_norm(each, dim=-1)
            torch.mv(clipping.apply(each).T, own, out=found[device])
        if votes is not None:
            votes.count(norms, shares > 0)
        return found

    def _sum(self, model: Tensor, x: Tensor, y: Tensor, shares: Tensor, *others: Tensor) -> Tensor:
        """Sum of the records' losses, weighted by their shares."""
        return (self._losses.each(model, x, y, *others) * shares).sum()

    def _record_loss(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        return self._sum(model, x[None], y[None], torch.ones(1, device=x.device), *others)
