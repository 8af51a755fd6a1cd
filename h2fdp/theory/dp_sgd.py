"""The noise of DP-SGD as the bounds of both ALI-DPFL papers see it: one noisy sum of clipped gradients each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from h2fdp.theory.ranges import require, require_count


@dataclass(frozen=True)
class DpSgdNoise:
    """What each local step adds to the sum of a batch's clipped gradients: N(0, sigma^2 C^2 I_d), divided by B.

    Attributes:
        clip_norm: C, the bound on a record's gradient.
        noise_multiplier: sigma.
        parameters: d, the coordinates of the model.
        batch: B, the records of the smallest expected batch (`least_batch`); it may be fractional.

    Raises:
        UserError: a number out of its range.
    """

    clip_norm: float
    noise_multiplier: float
    parameters: int
    batch: float

    def __post_init__(self) -> None:
        require(0 < self.clip_norm < math.inf, "clip_norm", self.clip_norm, "a finite number above 0")
        require(
            0 <= self.noise_multiplier < math.inf,
            "noise_multiplier",
            self.noise_multiplier,
            "a finite number of at least 0",
        )
        require_count(self.parameters, 1, "parameters")
        require(1 <= self.batch < math.inf, "batch", self.batch, "a finite number of at least 1")

    @property
    def energy(self) -> float:
        """sigma^2 C^2 d / B^2, the expected squared norm of a step's noise, a squared gradient.

        >>> DpSgdNoise(clip_norm=2.0, noise_multiplier=3.0, parameters=50, batch=10).energy
        18.0
        """
        return (self.noise_multiplier * self.clip_norm / self.batch) ** 2 * self.parameters

    @property
    def step_energy(self) -> float:
        """C^2 + sigma^2 C^2 d / B^2, the bound on the expected squared norm of a noisy gradient."""
        return self.clip_norm**2 + self.energy


def least_batch(sampling_rates: np.ndarray, records: np.ndarray) -> float:
    """B = min_i q_i D_i, and at least 1: a device whose batches are empty most of the time still divides by a record.

    >>> least_batch(np.array([0.5, 0.25]), np.array([10, 10])), least_batch(np.array([0.01]), np.array([30]))
    (2.5, 1.0)
    """
    return max(1.0, float(np.min(sampling_rates * records)))
