"""What the cloud holds after an interval, for a schedule to learn from: released vectors, and measurements if any."""

from __future__ import annotations

from dataclasses import dataclass

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
class Observation:
    """One interval as the cloud saw it.

    Attributes:
        model: (M,) w(t_k), the model that went down.
        uploads: (M,) from each active subnet, everything it accumulated; releases with the noise below, if any. None
            at all where nobody was there.
        weights: (subnets,) varrho_c, summing to 1.
        noise_variance: (subnets,) variance of the noise on each coordinate of an upload.
        mean_steps: (subnets,) gradients that an upload accumulates, the mean over its devices: tau_k unless some fail.
        measurements: None where the schedule asked for none.
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
