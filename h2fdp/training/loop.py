"""The reference engine: one device after another, one step after another, as the equations read."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from h2fdp.models import Flat
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.objectives import LocalObjective


class LoopEngine:
    """Simple and right: plain autograd on one flat parameter vector."""

    def __init__(self, module: nn.Module, clipping: Clipping | None, objective: LocalObjective) -> None:
        self._module = module
        self._flat = Flat(module)
        self._clipping = clipping
        self._objective = objective

    def updates(
        self, starts: Tensor, records: DeviceRecords, rows: np.ndarray, batches: Batches, step_size: float
    ) -> Tensor:
        """See `Engine.updates`."""
        updates = torch.empty_like(starts, memory_format=torch.contiguous_format)
        for position, (start, row, steps) in enumerate(zip(starts, rows, batches.steps_done, strict=True)):
            model = start
            for slot in range(int(steps)):
                drawn = batches.of(slot, position)
                # An empty Poisson batch gives a zero gradient.
                gradient = partial(self._gradient, records, int(row), drawn) if drawn.size else torch.zeros_like
                model = self._objective.step(model, gradient, start, step_size)
            updates[position] = start - model
        return updates

    def _gradient(self, records: DeviceRecords, row: int, drawn: np.ndarray, model: Tensor) -> Tensor:
        """(M,) what a step follows: the mean gradient over the drawn records, clipped as asked."""
        return self._clipped_batch(self._mean(model, *records.gather(drawn + records.offsets[row])))

    def _mean(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(M,) mean gradient over records, of gradients clipped one by one where the scope is `record`."""
        if self._clipping is not None and self._clipping.scope == "record":
            per_record = vmap(grad(self._record_loss), in_dims=(None, 0, 0))(model, x, y)
            return self._clipping.apply(per_record).mean(dim=0)
        leaf = model.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(leaf, x, y), leaf)
        return gradient

    def _clipped_batch(self, gradient: Tensor) -> Tensor:
        """A batch's mean gradient, clipped where the scope is `batch`."""
        if self._clipping is None or self._clipping.scope == "record":
            return gradient
        return self._clipping.apply(gradient)

    def _loss(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        output = functional_call(self._module, self._flat.views(model), (x,))
        return nn.functional.cross_entropy(output, y)

    def _record_loss(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(model, x[None], y[None])
