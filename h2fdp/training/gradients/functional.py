"""Gradients of any module by torch.func, over the devices of a stack at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from h2fdp.training.clipping import Clipping
from h2fdp.training.local_objective import FeatureComparison
from h2fdp.training.losses import CROSS_ENTROPY, Loss
from h2fdp.training.record_loss import RecordLoss

_LAST_NUMBERS = 64  # a loop over vectors of a processor leaves fewer than these over


class FunctionalGradients:
    """See `GradientRule`. Clipped records' gradients are written out, those of one device at a time."""

    def __init__(
        self,
        module: nn.Module,
        record_norm: float | None,
        loss: Loss = CROSS_ENTROPY,
        comparison: FeatureComparison | None = None,
    ) -> None:
        self._losses = RecordLoss(module, loss, comparison)
        self._clipping = None if record_norm is None else Clipping(record_norm, "record")

    def sums(
        self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor, others: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """See `GradientRule.sums`."""
        given = (models, x, y, shares, *(others or ()))
        if self._clipping is None:
            # Torch computes the last few numbers of a tensor by another routine than the rest: they are nobody's.
            nobody = -(-_LAST_NUMBERS // min(shares.shape[1], *self._losses.flat.sizes))
            padded = (torch.cat([each, each[-1:].expand(nobody, *each.shape[1:])]) for each in given)
            sums: Tensor = vmap(grad(self._sum))(*padded)
            return sums[: len(models)]
        found = torch.empty_like(models)
        alike = (None,) * len(others or ())
        for device, own in enumerate(shares):
            fixed = () if others is None else (others[0][device], others[1][device])
            one_by_one = vmap(grad(self._record_loss), in_dims=(None, 0, 0, *alike))
            each = one_by_one(models[device], x[device], y[device], *fixed)
            torch.mv(self._clipping.apply(each).T, own, out=found[device])
        return found

    def _sum(self, model: Tensor, x: Tensor, y: Tensor, shares: Tensor, *others: Tensor) -> Tensor:
        """Sum of the records' losses, weighted by their shares."""
        return (self._losses.each(model, x, y, *others) * shares).sum()

    def _record_loss(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        return self._sum(model, x[None], y[None], torch.ones(1, device=x.device), *others)
