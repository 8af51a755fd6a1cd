"""What was sent in one interval, on the canaries' coordinates only: small, whatever the model's size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from h2fdp.privacy.words import NoiseSource


@dataclass(frozen=True)
class SubnetTranscript:
    """One interval of one subnet.

    Attributes:
        source: who added noise.
        first_device: number over the whole network of row 0.
        rows: (s,) rows of the devices that took part.
        weights: (segments, s) rho_j in each aggregation, the last one global; 0 for whose upload did not arrive.
        share: varrho_c, the subnet's weight at the cloud.
        steps: (segments, s) local steps that each upload accumulates; 0 where there is none.
        noise_std: (segments, s) from devices or (segments, 1) from the edge server, as planned.
        received: (segments, N) the models that the segments started from, as broadcast.
        uploads: (segments, s, N) what the devices sent; 0 where nothing.
        upload: (N,) what the edge server sent to the cloud.
    """

    source: NoiseSource
    first_device: int
    rows: np.ndarray
    weights: np.ndarray
    share: float
    steps: np.ndarray
    noise_std: np.ndarray
    received: np.ndarray
    uploads: np.ndarray
    upload: np.ndarray

    @cached_property
    def noise_parts(self) -> np.ndarray:
        """(segments, s) variance that each device's own noise adds to the average; 0 where the edge server adds it."""
        if self.source == "device":
            return np.asarray((self.weights * self.noise_std) ** 2)
        return np.zeros(self.steps.shape)

    @cached_property
    def noise_variances(self) -> np.ndarray:
        """(segments,) variance of the noise on each average; 0 where nobody's upload arrived."""
        if self.source == "device":
            return np.asarray(self.noise_parts.sum(axis=1))
        return np.asarray(np.where(self.steps.any(axis=1), self.noise_std[:, 0] ** 2, 0.0))


@dataclass(frozen=True)
class IntervalTranscript:
    """One interval of the whole network.

    Attributes:
        step_size: eta_k.
        subnets: those that took part.
        moved: (N,) w(t_k) - w(t_{k+1}), which everybody sees.
    """

    step_size: float
    subnets: tuple[SubnetTranscript, ...]
    moved: np.ndarray

    @cached_property
    def noise_variance(self) -> float:
        """Variance of all noise on the global model's move."""
        return sum(subnet.share**2 * float(subnet.noise_variances.sum()) for subnet in self.subnets)
