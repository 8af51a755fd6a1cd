"""What a stacked engine needs to know of a model: the gradients of a stack of devices, each over its own records.

Chains of known layers have theirs written out: one pass forward, one back to each layer's output, and batched products
from there, so nothing but sums over records, weighted by shares and clipping factors, is ever computed of the
parameters' gradients where layers allow it. Of any other module torch.func makes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from h2fdp.models import ParameterLayout
from h2fdp.training.clipping import Clipping, NormVotes, clip_factors
from h2fdp.training.gradients.chain import Parametrised, Step, chain_of
from h2fdp.training.gradients.layers import Probabilities
from h2fdp.training.local_objective import FeatureComparison
from h2fdp.training.losses import CROSS_ENTROPY, Loss, RecordLoss


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
