"""What devices measure between where they ended an interval and the model that followed it, for schedules that ask.

Losses and gradients are raw, so under a guarantee the run is marked as leaking (`control.estimates: oracle`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.data.records import Rows
from h2fdp.models import ParameterLayout
from h2fdp.schedules.device_estimates import SHORTEST_SECANT
from h2fdp.schedules.drift import DriftConstants
from h2fdp.schedules.feedback import DeviceSecants
from h2fdp.training import BatchSampler, DeviceRecords, Engine
from h2fdp.training.losses import CROSS_ENTROPY, Loss

CurvatureSource = Literal["gradients", "parameters"]

_LEAST_SMOOTHNESS = 1e-5  # of a device that moved at all


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


def drift_constants(seen: DeviceSecants) -> DriftConstants | None:
    """rho, beta and delta (or xi), the weighted means over devices; None where a measurement is no number.

    rho_i = |F_i(w_i) - F_i(w)| / ||w_i - w||, beta_i = ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w|| and at least 1e-5,
    both 0 within 1e-10 of w; delta_i = ||grad F_i(w) - grad F(w)||.
    """
    lipschitz = _secants(np.abs(seen.loss_local - seen.loss), seen.distance)
    smoothness = _secants(seen.gradient_change, seen.distance)
    floored = np.where(seen.distance <= SHORTEST_SECANT, 0.0, np.maximum(smoothness, _LEAST_SMOOTHNESS))
    means = [float(seen.weights @ values) for values in (lipschitz, floored, seen.divergence)]
    return DriftConstants(*means) if all(map(math.isfinite, means)) else None


def mean_curvature(seen: DeviceSecants, source: CurvatureSource) -> float | None:
    """mu, the weighted mean over the devices that ended more than 1e-10 from w; None where none did or it is no number.

    Args:
        source: `gradients` takes ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w||, as the paper; `parameters` the length
            of the last local step over ||w_i - w||, as the authors' program.
    """
    mass = float(seen.weights[~(seen.distance <= SHORTEST_SECANT)].sum())
    change = seen.gradient_change if source == "gradients" else seen.last_step
    total = float(seen.weights @ _secants(change, seen.distance))
    return total / mass if mass > 0 and math.isfinite(total) else None


def mean_loss_change(seen: DeviceSecants) -> float | None:
    """|sum_i p_i (F_i(w_i) - F_i before its last step)|, the program's Gamma; None where it is no number."""
    change = abs(float(seen.weights @ (seen.loss_local - seen.loss_before)))
    return change if math.isfinite(change) else None


def mean_loss(seen: DeviceSecants) -> float:
    """F(w), as the mini-batches have it."""
    return float(seen.weights @ seen.loss)


def _secants(changes: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """(n,) changes / distances, 0 within 1e-10."""
    still = distances <= SHORTEST_SECANT
    return np.asarray(np.where(still, 0.0, changes / np.where(still, 1.0, distances)))
