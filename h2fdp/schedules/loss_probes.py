"""What devices measure between where they ended an interval and the model that followed it, for schedules that ask.

Losses and gradients are raw, so under a guarantee the run is marked as leaking (`control.estimates: oracle`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.data.records import Rows
from h2fdp.models import ParameterLayout
from h2fdp.schedules.feedback import DeviceSecants
from h2fdp.training import BatchSampler, DeviceRecords, Engine
from h2fdp.training.losses import CROSS_ENTROPY, Loss


@dataclass(frozen=True)
class LossProbe:
    """How a group of devices measures: an engine of plain, unclipped gradient steps, and the model for its losses."""

    engine: Engine
    module: nn.Module
    loss: Loss = CROSS_ENTROPY


@dataclass(frozen=True)
class SecantOrder:
    """A group's part: the devices `rows` (s,) of it, which ended at `ends` (s, M) by steps `last_steps` (s, M)."""

    interval: int
    slot: int
    rows: np.ndarray
    ends: Tensor
    last_steps: Tensor


@dataclass(frozen=True)
class SecantMeasurements(Rows):
    """Of s devices, each on one mini-batch.

    Attributes:
        numbers: (s, 6): ||w_i - w||, the length of the last step, F_i(w_i), F_i before that step, F_i(w),
            ||grad F_i(w_i) - grad F_i(w)||.
        gradients: (s, M) grad F_i(w).
    """

    numbers: np.ndarray
    gradients: Tensor

    def cpu(self) -> SecantMeasurements:
        """The same in the memory of the processor."""
        return SecantMeasurements(self.numbers, self.gradients.cpu())

    def secants(self, weights: np.ndarray) -> DeviceSecants:
        """For a schedule; `weights` (s,) p_i sum to 1."""
        gradients = self.gradients.double()
        mean = torch.from_numpy(weights) @ gradients
        divergence = (gradients - mean).norm(dim=1).numpy()
        distance, last_step, loss_local, loss_before, loss, change = self.numbers.T
        return DeviceSecants(weights, distance, last_step, loss_local, loss_before, loss, change, divergence)


def measure_secants(
    loss_probe: LossProbe,
    sampler: BatchSampler,
    records: DeviceRecords,
    model: Tensor,
    order: SecantOrder,
    held: np.ndarray,
) -> SecantMeasurements:
    """The measurements of a group at the model w (M,) that followed the interval.

    Args:
        held: (s,) the devices' rows in `records`.
    """
    batches = sampler.draw(order.interval, [order.slot], order.rows, "secants")
    ends, last = order.ends.to(model.device), order.last_steps.to(model.device)
    here = model.expand(len(held), -1)

    def gradients(points: Tensor) -> Tensor:
        return loss_probe.engine.train(points, records, held, batches, 1.0).updates

    flat = ParameterLayout(loss_probe.module)

    def losses(points: Tensor) -> list[float]:
        found = []
        for position, (point, row) in enumerate(zip(points, held, strict=True)):
            drawn = batches.of(0, position)
            if not drawn.size:
                found.append(0.0)  # an empty Poisson batch has no loss, as it has no gradient
                continue
            x, y = records.gather(drawn + records.offsets[row])
            with torch.no_grad():
                scores = functional_call(loss_probe.module, flat.views(point), (x,))
                found.append(float(loss_probe.loss.mean(scores, y)))
        return found

    at_end, at_model = gradients(ends), gradients(here)
    columns = [
        (ends - model).double().norm(dim=1).tolist(),
        last.double().norm(dim=1).tolist(),
        losses(ends),
        losses(ends + last),
        losses(here),
        (at_end - at_model).double().norm(dim=1).tolist(),
    ]
    return SecantMeasurements(np.array(columns).T.reshape(len(held), len(columns)), at_model)
