"""What devices and edge servers measure for the controller (H2FDP, Sec. 10): curvature and spread of gradients.

Either every number is clipped to a range and released under noise at the boundary of trust, like an update, or - for
studies - everything goes up raw, and the run is marked as leaking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from h2fdp.protocol.plans import MeasuringOrder
from h2fdp.theory import minibatch_deviation, secant_smoothness
from h2fdp.training import Batches, BatchSampler, DeviceRecords, Engine

DEVICE_NUMBERS = 2  # smoothness, mini-batch deviation
EDGE_NUMBERS = 3  # and the dispersion within the subnet


@dataclass(frozen=True)
class Gauge:
    """How a group of devices measures.

    Attributes:
        engine: takes plain, unclipped gradient steps.
        ranges: (3,) the largest value of each number; what exceeds it is cut to it before it is released.
        leaks: everything goes up as it is.
    """

    engine: Engine
    ranges: np.ndarray
    leaks: bool

    def clipped(self, values: np.ndarray) -> np.ndarray:
        """(..., n) numbers in units of their ranges, cut to 0..1; what is no number counts as the largest."""
        return np.asarray(np.clip(np.nan_to_num(values / self.ranges[: values.shape[-1]], nan=1.0), 0.0, 1.0))


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
    gauge: Gauge, sampler: BatchSampler, records: DeviceRecords, model: Tensor, order: MeasuringOrder, held: np.ndarray
) -> tuple[np.ndarray, Tensor]:
    """Numbers (s, 2) and gradients (s, M) of the ordered devices at `model` (M,), from two mini-batches of each.

    Smoothness is the secant between w and w - h g', h = `order.reach`: both gradients of one batch, the step along the
    other batch's. The deviation is that of the two batches at w.

    Args:
        held: (s,) the devices' rows in `records`.
    """
    one, other = (sampler.draw(order.interval, [order.slot], order.rows, f"estimate-{number}") for number in (1, 2))

    def gradients(points: Tensor, batches: Batches) -> Tensor:
        return gauge.engine.train(points, records, held, batches, 1.0).updates.double()

    here = model.expand(len(held), -1)
    gradient, second = gradients(here, one), gradients(here, other)
    moved = (here - order.reach * gradient).float()
    there = gradients(moved, other).cpu().numpy()
    at_first, at_second = gradient.cpu().numpy(), second.cpu().numpy()
    points, center = moved.cpu().numpy().astype(np.float64), model.cpu().numpy().astype(np.float64)
    numbers = [
        (
            secant_smoothness(there[[row]], at_second[[row]], points[[row]], center),
            minibatch_deviation(at_first[[row]], at_second[[row]]),
        )
        for row in range(len(held))
    ]
    return np.array(numbers), gradient


def relayed(gauge: Gauge, released: np.ndarray, noise_std: np.ndarray) -> SubnetMeasurements:
    """What an untrusted edge server sends on: the mean of its devices' noisy numbers (s, 2), out of their units."""
    ranges = gauge.ranges[:DEVICE_NUMBERS]
    noise = float(np.sqrt((noise_std**2).sum())) / len(released)
    unknown = np.full(EDGE_NUMBERS - DEVICE_NUMBERS, np.nan)
    return SubnetMeasurements(
        np.concatenate([released.mean(axis=0) * ranges, unknown]), np.concatenate([noise * ranges, unknown]), None
    )
