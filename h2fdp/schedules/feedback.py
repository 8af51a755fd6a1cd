"""What the cloud holds after an interval, for a schedule to learn from: released vectors, and measurements if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Measurements:
    """Estimates that subnets computed for the controller (Sec. 10), released under noise or leaked raw.

    Attributes:
        values: (subnets, 3) smoothness, mini-batch deviation, dispersion within the subnet; NaN where not measured.
        noise_std: (subnets, 3) of the noise on each; 0 where they are raw.
        gradients: (subnets, M) raw mean gradients of the subnets; None unless they leak.
        weights: (subnets,) varrho_c of these subnets, summing to 1.
    """

    values: np.ndarray
    noise_std: np.ndarray
    gradients: np.ndarray | None
    weights: np.ndarray


@dataclass(frozen=True)
class DeviceSecants:
    """What n devices measure between w_i, where each ended the interval, and w, the model that followed.

    Each takes both losses and gradients on one mini-batch of its own, without noise and without clipping: all of it
    leaks, unless it is made private.

    Attributes:
        weights: (n,) p_i, summing to 1.
        distance: (n,) ||w_i - w||.
        last_step: (n,) the length of the last local step, ||w_i - w_i before it||.
        loss_local: (n,) F_i(w_i).
        loss_before: (n,) F_i at w_i before its last step.
        loss: (n,) F_i(w).
        gradient_change: (n,) ||grad F_i(w_i) - grad F_i(w)||.
        divergence: (n,) ||grad F_i(w) - grad F(w)||, F the weighted mean of these devices.
    """

    weights: np.ndarray
    distance: np.ndarray
    last_step: np.ndarray
    loss_local: np.ndarray
    loss_before: np.ndarray
    loss: np.ndarray
    gradient_change: np.ndarray
    divergence: np.ndarray


@dataclass(frozen=True)
class IntervalObservation:
    """One interval as the cloud saw it.

    Attributes:
        model: (M,) w(t_k), the model that went down.
        uploads: (M,) from each active child of the cloud, everything it accumulated; releases with the noise below, if
            any. Only their average, under all noise, where the cloud adds the noise or holds a secure sum: the public,
            who sees what a schedule decides, is accounted for no more. Empty where no device was active.
        weights: (uploads,) varrho_c, summing to 1.
        noise_variance: (uploads,) variance of the noise on each coordinate of an upload.
        mean_steps: (uploads,) gradients that an upload accumulates, the mean over its devices: tau_k unless some fail.
        measurements: None where the schedule asked for none.
        secants: None where the schedule asked for none, or nobody was there.
        spent: what the interval cost, by resource as the metrics name it (`energy_j`, `delay_s`, `clock_s`); without
            those that nobody metered.
    """

    interval: int
    local_steps: int
    step_size: float
    model: Tensor
    uploads: list[Tensor]
    weights: np.ndarray
    noise_variance: np.ndarray
    mean_steps: np.ndarray
    measurements: Measurements | None = None
    secants: DeviceSecants | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
