"""Gradients of a chain of layers: one pass forward, one back to each layer's output, and batched products from there.

Autograd carries the gradient from output to output; parameters take no part in it. So nothing but sums over records,
weighted by shares and clipping factors, is ever computed of the parameters' gradients, where layers allow it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from h2fdp.models import ParameterLayout
from h2fdp.training.clipping import NormVotes, clip_factors
from h2fdp.training.gradients.chain import Parametrised, Step
from h2fdp.training.gradients.layers import Probabilities
from h2fdp.training.losses import CROSS_ENTROPY, Loss


class LayeredGradients:
    def __init__(
        self,
        module: nn.Module,
        chain: list[Step],
        record_norm: float | None,
        loss: Loss = CROSS_ENTROPY,
        gamma: float | None = None,
    ) -> None:
        self._loss = loss
        self._flat = ParameterLayout(module)
        self._chain = chain
        self._record_norm = record_norm
        self._gamma = gamma
        # One layer that ends the chain, but for probabilities, needs no autograd from the scores to its output.
        layers = sum(isinstance(step, Parametrised) for step in chain)
        self._end = chain[-1] if isinstance(chain[-1], Probabilities) else None
        self._goes_back = layers > 1 or not isinstance(chain[-2 if self._end else -1], Parametrised)

    def sums(
        self,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        shares: Tensor,
        others: tuple[Tensor, Tensor] | None = None,
        votes: NormVotes | None = None,
    ) -> Tensor:
        """See `GradientRule.sums`; the loss is one of scores, which no other models enter."""
        saved, outputs, scores = self._forward(models, x)
        if self._record_norm is None:
            deltas = self._deltas(outputs, scores, self._loss.score_gradient(scores.detach(), y, shares))
            pieces = [each.layer.sums(kept, d) for (each, kept), d in zip(saved, deltas, strict=True)]
        else:
            deltas = self._deltas(outputs, scores, self._loss.score_gradient(scores.detach(), y))
            pieces = self._clipped(saved, deltas, shares, votes)
        # Chains hold their parameters in the order of the vector.
        whole = [piece.flatten(1) for (each, _), found in zip(saved, pieces, strict=True) for piece in found]
        return whole[0] if len(whole) == 1 else torch.cat(whole, dim=1)

    def _forward(self, models: Tensor, x: Tensor) -> tuple[list[tuple[Parametrised, Any]], list[Tensor], Tensor]:
        """Layers with what they saved, their outputs, and the scores (n, W, classes)."""
        parameters = self._flat.views(models)
        saved, outputs = [], []
        with torch.set_grad_enabled(self._goes_back):
            for step in self._chain:
                if not isinstance(step, Parametrised):
                    x = step(x)
                    continue
                x, kept = step.layer.forward([parameters[name] for name in step.names], x)
                saved.append((step, kept))
                if self._goes_back and not x.requires_grad:
                    x.requires_grad_()
                outputs.append(x)
        return saved, outputs, x

    def _deltas(self, outputs: list[Tensor], scores: Tensor, delta: Tensor) -> list[Tensor]:
        """The gradient in each layer's output."""
        if self._goes_back:
            return list(torch.autograd.grad(scores, outputs, delta))
        return [delta if self._end is None else self._end.back(scores, delta)]

    def _clipped(
        self, saved: list[tuple[Parametrised, Any]], deltas: list[Tensor], shares: Tensor, votes: NormVotes | None
    ) -> list[list[Tensor]]:
        """The pieces of the sum of clipped gradients."""
        assert self._record_norm is not None
        records = [each.layer.record_gradients(kept, d) for (each, kept), d in zip(saved, deltas, strict=True)]
        # Added one by one: torch sums the rows of one tensor in an order that depends on how many columns it has.
        total = torch.zeros_like(shares)
        for piece in (piece for found in records for piece in found):
            total += piece.squared_norms()
        bad = total.isfinite().logical_not_()
        if bad.device.type != "cpu" or bad.any():  # a GPU would have to be waited for, to know
            records = [[piece.without(bad) for piece in found] for found in records]
        norms, bound = total.sqrt_(), self._record_norm
        if votes is not None:
            votes.count(norms, shares > 0)
            bound = votes.norm
        factors = clip_factors(norms, bound, self._gamma).mul_(shares)
        return [[piece.weighted(factors) for piece in found] for found in records]
