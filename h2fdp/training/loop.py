"""The reference engine: one device after another, one step after another, as the equations read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping, of_records
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import (
    PLAIN_TERMS,
    Descent,
    Gradient,
    StepTerms,
    TrainingResult,
    comparison_of,
    once,
    previous_models,
)
from h2fdp.training.losses import CROSS_ENTROPY, Loss, RecordLoss


class LoopEngine:
    """Simple and right: plain autograd on one flat parameter vector."""

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        descent: Descent,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        self._compares = comparison_of(descent.objective)
        self._losses = RecordLoss(module, loss, self._compares)
        self._clipping = clipping
        self._descent = descent.on(module)

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        trained = TrainingResult.room(starts, self._descent.objective.personal, terms.watched, terms.kept)
        for position, (start, row, steps) in enumerate(zip(starts, rows, batches.steps_done, strict=True)):
            own = terms.part(np.array([position]))
            correction = None if own.corrections is None else own.corrections[0]
            state = self._descent.begin(start, correction, None if own.kept is None else own.kept[0])
            others: tuple[Tensor, ...] = ()
            if self._compares is not None:
                assert correction is not None, "the model that the device had before"
                others = start, previous_models(correction, start)
            correction = correction if self._descent.corrects else None
            last = torch.zeros_like(start) if terms.watched else None
            for slot in range(int(steps)):
                gradient: Gradient = partial(self._gradient, records, int(row), batches, slot, position, own, others)
                gradient = gradient if terms.noise is None else once(gradient)
                moved = self._descent.step(state, gradient, start, step_size, correction, slot)
                if last is not None:
                    last = state.models - moved.models
                state = moved
            trained.place(position, TrainingResult(*self._descent.ended(start, state), last, state.kept))
        return trained

    def _gradient(
        self,
        records: DeviceRecords,
        row: int,
        batches: Batches,
        slot: int,
        position: int,
        terms: StepTerms,
        others: tuple[Tensor, ...],
        model: Tensor,
    ) -> Tensor:
        """(M,) what a step follows: the gradient over the drawn records, clipped and noisy as asked."""
        divisor, drawn = float(batches.divisors[slot, position]), batches.of(slot, position)
        change = None
        if terms.variants is not None:
            change = partial(terms.variants.rule.images, codes=terms.variants.codes(slot, 0, len(drawn)))
        found = self._bounded(records, row, drawn, divisor, model, others, change)
        if terms.noise is not None:
            terms.noise.add(found[None], slot, np.array([divisor]))
        return found

    def _bounded(
        self,
        records: DeviceRecords,
        row: int,
        drawn: np.ndarray,
        divisor: float,
        model: Tensor,
        others: tuple[Tensor, ...] = (),
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(M,) the gradient over the drawn records, clipped as asked; an empty Poisson batch gives zero."""
        if not drawn.size:
            return torch.zeros_like(model)
        x, y = records.gather(drawn + records.offsets[row], change)
        return self._clipped_batch(self._mean(model, x, y, divisor, others, len(drawn)))

    def _mean(
        self,
        model: Tensor,
        x: Tensor,
        y: Tensor,
        divisor: float,
        others: tuple[Tensor, ...] = (),
        records: int | None = None,
    ) -> Tensor:
        """(M,) sum of the records' gradients / divisor, clipped one by one where the scope is `record`.

        Args:
            records: of which x has equally many variants each; None for one.
        """
        count = len(y) if records is None else records
        if clipping := of_records(self._clipping):
            if len(x) == count:
                per_record = self._losses.gradients(model, x, y, *others)
            else:  # the variants of a record at once, never those of all
                own = zip(x.view(count, -1, *x.shape[1:]), y.view(count, -1, *y.shape[1:]), strict=True)
                per_record = torch.stack([self._losses.gradients(model, *each, *others).mean(dim=0) for each in own])
            return clipping.apply(per_record).sum(dim=0) / divisor
        leaf = model.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._losses.mean(leaf, x, y, *others), leaf)
        # In place, where it is memory of its own: a large model's fresh memory takes longer than the products.
        return gradient.mul_(count / divisor) if gradient.is_contiguous() else gradient * (count / divisor)

    def _clipped_batch(self, gradient: Tensor) -> Tensor:
        """A batch's mean gradient, clipped where batches are."""
        if self._clipping is None or not self._clipping.of_batches:
            return gradient
        return self._clipping.for_batches.apply(gradient)
