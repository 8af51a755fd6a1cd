"""What devices and edge servers measure for the controller (H2FDP, Sec. 10): curvature and spread of gradients.

Either every number is clipped to a range and released under noise at the boundary of trust, like an update, or - for
studies - everything goes up raw, and the run is marked as leaking. The formulas are those of Lin et al. 2021
("Semi-Decentralized Federated Learning with Cooperative D2D Local Model Aggregations", Sec. IV-C).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.data.records import Rows
from h2fdp.models.construct import ParameterLayout
from h2fdp.schedules.schedule import DeviceSecants
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import Engine
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
        losses = []
        for position, (point, row) in enumerate(zip(points, held, strict=True)):
            drawn = batches.of(0, position)
            if not drawn.size:
                losses.append(0.0)  # an empty Poisson batch has no loss, as it has no gradient
                continue
            x, y = records.gather(drawn + records.offsets[row])
            with torch.no_grad():
                scores = functional_call(loss_probe.module, flat.views(point), (x,))
                losses.append(float(loss_probe.loss.mean(scores, y)))
        return losses

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


DEVICE_NUMBERS = 2  # smoothness, mini-batch deviation
EDGE_NUMBERS = 3  # and the dispersion within the subnet
SHORTEST_SECANT = 1e-10


@dataclass(frozen=True)
class EstimateSettings:
    """What a `GradientProbe` measures for the controller: up to which values, and whether they go up raw."""

    ranges: tuple[float, float, float]
    leaks: bool


@dataclass(frozen=True)
class GradientProbe:
    """How a group of devices measures.

    Attributes:
        engine: takes plain, unclipped gradient steps.
        ranges: (3,) the largest value of each number; what exceeds it is cut to it before it is released.
        leaks: everything goes up raw.
    """

    engine: Engine
    ranges: np.ndarray
    leaks: bool

    def clipped(self, values: np.ndarray) -> np.ndarray:
        """(..., n) numbers in units of their ranges, cut to 0..1; NaN counts as the largest value."""
        return np.asarray(np.clip(np.nan_to_num(values / self.ranges[: values.shape[-1]], nan=1.0), 0.0, 1.0))


@dataclass(frozen=True)
class MeasuringOrder:
    """Measure at the broadcast model w(t_{k+1}), then send up what may leave.

    Attributes:
        slot: t_{k+1}.
        reach: how far apart, in gradients, the two points of a secant are.
        rows: (s,) rows within the subnet of the group's devices that took part.
        noise_std: (s,) that each device adds to its numbers; empty where it adds none.
    """

    interval: int
    slot: int
    reach: float
    rows: np.ndarray
    noise_std: np.ndarray


@dataclass(frozen=True)
class DeviceMeasurements:
    """What a group of devices sends up.

    Attributes:
        values: (s, 2) smoothness and mini-batch deviation of each device; noisy and in units of their ranges where
            devices add noise.
        gradients: (s, M) mini-batch gradients; None where they may not leave the devices.
    """

    values: np.ndarray
    gradients: Tensor | None


@dataclass(frozen=True)
class SubnetMeasurements:
    """What a subnet sends to the cloud.

    Attributes:
        values: (3,) smoothness, mini-batch deviation, dispersion; NaN where not measured.
        noise_std: (3,) standard deviation of the noise on each; 0 where raw.
        gradient: (M,) mean gradient of the subnet; None where nothing leaks.
    """

    values: np.ndarray
    noise_std: np.ndarray
    gradient: Tensor | None


def measure_devices(
    gradient_probe: GradientProbe,
    sampler: BatchSampler,
    records: DeviceRecords,
    model: Tensor,
    order: MeasuringOrder,
    held: np.ndarray,
) -> tuple[np.ndarray, Tensor]:
    """Numbers (s, 2) and gradients (s, M) of the ordered devices at `model` (M,), from two mini-batches of each.

    Smoothness is the secant between w and w - h g', h = `order.reach`: both gradients of one batch, the step along the
    other batch's. The deviation is that of the two batches at w.

    Args:
        held: (s,) the devices' rows in `records`.
    """
    one, other = (sampler.draw(order.interval, [order.slot], order.rows, f"estimate-{number}") for number in (1, 2))

    def gradients(points: Tensor, batches: Batches) -> Tensor:
        return gradient_probe.engine.train(points, records, held, batches, 1.0).updates.double()

    here = model.expand(len(held), -1)
    gradient, second = gradients(here, one), gradients(here, other)
    moved = (here - order.reach * gradient).float()
    moved_gradients = gradients(moved, other).cpu().numpy()
    at_first, at_second = gradient.cpu().numpy(), second.cpu().numpy()
    points, center = moved.cpu().numpy().astype(np.float64), model.cpu().numpy().astype(np.float64)
    numbers = [
        (
            secant_smoothness(moved_gradients[[row]], at_second[[row]], points[[row]], center),
            minibatch_deviation(at_first[[row]], at_second[[row]]),
        )
        for row in range(len(held))
    ]
    return np.array(numbers), gradient


def relayed(gradient_probe: GradientProbe, released: np.ndarray, noise_std: np.ndarray) -> SubnetMeasurements:
    """What an untrusted edge server sends on: the mean of its devices' noisy numbers (s, 2), out of their units."""
    ranges = gradient_probe.ranges[:DEVICE_NUMBERS]
    noise = float(np.sqrt((noise_std**2).sum())) / len(released)
    unknown = np.full(EDGE_NUMBERS - DEVICE_NUMBERS, np.nan)
    return SubnetMeasurements(
        np.concatenate([released.mean(axis=0) * ranges, unknown]), np.concatenate([noise * ranges, unknown]), None
    )


def secant_smoothness(gradients: np.ndarray, gradients_here: np.ndarray, points: np.ndarray, here: np.ndarray) -> float:
    """beta = max_i ||g_i(w_i) - g_i(w)|| / ||w_i - w||, never above the true one; 0 when all w_i are within 1e-10 of w.

    Args:
        gradients: (I, M) g_i(w_i), each on the mini-batch of `gradients_here`.
        gradients_here: (I, M) g_i(w).
        points: (I, M) w_i.
        here: (M,) w.

    >>> secant_smoothness(np.array([[6.0], [1.0]]), np.array([[2.0], [1.0]]), np.array([[4.0], [0.0]]), np.array([2.0]))
    2.0
    """
    distances = np.linalg.norm(points - here, axis=-1)
    far = distances >= SHORTEST_SECANT
    changes = np.linalg.norm(gradients - gradients_here, axis=-1)
    return float(np.max(changes[far] / distances[far], initial=0.0))


def minibatch_deviation(first: np.ndarray, second: np.ndarray) -> float:
    """sigma = max_i ||g_i - g_i'|| / sqrt(2), from two independent mini-batches of each device at the same point.

    The mean square over mini-batches of one device's is its sigma_i^2; the maximum over devices tends to lie above.

    Args:
        first: (I, M) g_i.
        second: (I, M) g_i'.

    >>> minibatch_deviation(np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]]))
    1.0
    """
    return float(np.max(np.linalg.norm(first - second, axis=-1))) / float(np.sqrt(2))


def gradient_dispersion(gradients: np.ndarray, weights: np.ndarray) -> float:
    """The largest distance from the weighted mean: zeta_c of devices in a subnet (23), zeta of subnets (22).

    Args:
        gradients: (n, M) g_i of the subnet's active devices, or g_c of the subnets, at one point.
        weights: (n,) rho_i or varrho_c, summing to 1.

    >>> gradient_dispersion(np.array([[0.0, 0.0], [6.0, 8.0]]), np.array([0.5, 0.5]))
    5.0
    """
    return float(np.max(np.linalg.norm(gradients - weights @ gradients, axis=-1)))
