"""Gradients of any module by torch.func, over the devices of a stack at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from h2fdp.models import Flat
from h2fdp.training.clipping import Clipping

_LAST_NUMBERS = 64  # a loop over vectors of a processor leaves fewer than these over


class FunctionalGradients:
    """See `GradientRule`. Clipped records' gradients are written out, those of one device at a time."""

    def __init__(self, module: nn.Module, record_norm: float | None) -> None:
        self._module = module
        self._flat = Flat(module)
        self._clipping = None if record_norm is None else Clipping(record_norm, "record")

    def sums(self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        """See `GradientRule.sums`."""
        if self._clipping is None:
            # Torch computes the last few numbers of a tensor by another routine than the rest: they are nobody's.
            nobody = -(-_LAST_NUMBERS // min(shares.shape[1], *self._flat.sizes))
            padded = (torch.cat([each, each[-1:].expand(nobody, *each.shape[1:])]) for each in (models, x, y, shares))
            sums: Tensor = vmap(grad(self._loss))(*padded)
            return sums[: len(models)]
        found = torch.empty_like(models)
        for device, own in enumerate(shares):
            each = vmap(grad(self._record_loss), in_dims=(None, 0, 0))(models[device], x[device], y[device])
            torch.mv(self._clipping.apply(each).T, own, out=found[device])
        return found

    def _loss(self, model: Tensor, x: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        """Sum of the records' cross-entropies, weighted by their shares."""
        scores = functional_call(self._module, self._flat.views(model), (x,))
        return (nn.functional.cross_entropy(scores, y, reduction="none") * shares).sum()

    def _record_loss(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(model, x[None], y[None], torch.ones(1, device=x.device))
