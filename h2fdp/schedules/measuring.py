"""Measurements of devices after an interval for a user's own schedule: raw, so that no account covers such a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.privacy.places import Cohort
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import Engine
from h2fdp.training.losses import Loss

Measured = Mapping[str, np.ndarray]
"""Name -> numbers of n devices: the first axis has one entry for each device."""


@dataclass(frozen=True)
class MeasuringDevices:
    """s devices of a host after an interval, each with one mini-batch of its own.

    Attributes:
        model: (M,) w, the model that followed the interval.
        ends: (s, M) w_i, where each device ended.
        last_steps: (s, M) w_i before the last local step - w_i.
    """

    model: Tensor
    ends: Tensor
    last_steps: Tensor
    _probe: Probe
    _records: DeviceRecords
    _held: np.ndarray
    _batches: Batches

    def gradients(self, models: Tensor) -> Tensor:
        """(s, M) of each device's mini-batch at its own row of `models` (s, M), not clipped."""
        return self._probe.engine.train(models, self._records, self._held, self._batches, 1.0).updates

    def losses(self, models: Tensor) -> list[float]:
        """The loss of each device's mini-batch at its own row of `models` (s, M); 0 where the batch is empty."""
        losses, flat = [], ParameterLayout(self._probe.module)
        for position, (model, row) in enumerate(zip(models, self._held, strict=True)):
            drawn = self._batches.of(0, position)
            if not drawn.size:
                losses.append(0.0)  # an empty Poisson batch has no loss, as it has no gradient
                continue
            x, y = self._records.gather(drawn + self._records.offsets[row])
            with torch.no_grad():
                scores = functional_call(self._probe.module, flat.views(model), (x,))
                losses.append(float(self._probe.loss.mean(scores, y)))
        return losses


Measure = Callable[[MeasuringDevices], Measured]


@dataclass(frozen=True, kw_only=True)
class MeasuringOrder(Cohort):
    """Devices that are to measure, which ended at `ends` (s, M) by steps `last_steps` (s, M)."""

    ends: Tensor
    last_steps: Tensor


@dataclass(frozen=True)
class Probe:
    """The measuring of a group of devices: a schedule's function, plain and unclipped gradient steps, and the loss."""

    measure: Measure
    engine: Engine
    module: nn.Module
    loss: Loss

    def measured(
        self, sampler: BatchSampler, records: DeviceRecords, held: np.ndarray, model: Tensor, order: MeasuringOrder
    ) -> Measured:
        """The function's answers about the ordered devices, whose rows in `records` are `held` (s,), at `model` (M,).

        Raises:
            UserError: it gives anything but an array with a row for each device.
        """
        batches = sampler.draw(order.segment.interval, [order.segment.last_slot], order.rows, "secants")
        ends, last = order.ends.to(model.device), order.last_steps.to(model.device)
        answer = self.measure(MeasuringDevices(model, ends, last, self, records, held, batches))
        found: Any = {name: len(each) for name, each in answer.items()} if isinstance(answer, Mapping) else answer
        if not isinstance(answer, Mapping) or any(rows != len(held) for rows in found.values()):
            text = f"expected names with an array of {len(held)} rows, one for each device, as `measures`"
            raise UserError(f"{text}; found {found}", key="method.schedule")
        return {name: np.asarray(each) for name, each in answer.items()}


def joined(parts: Sequence[Measured]) -> Measured:
    """The measurements of several groups, one after another."""
    return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
