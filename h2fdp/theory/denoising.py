"""The norm of a vector that was released with noise of known variance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Denoised:
    """A norm without the noise's expected share.

    Attributes:
        norm: the root of the squared norm less the expected noise energy, 0 when nothing is left.
        swamped: what is left is within three standard deviations of what noise alone leaves.
    """

    norm: float
    swamped: bool

    @property
    def clear(self) -> float | None:
        """The norm, or None when noise swamps it: what a `Smoothed` takes in."""
        return None if self.swamped else self.norm


def denoised_norm(noisy: np.ndarray, noise_variance: float) -> Denoised:
    """||d|| from d + n, n Gaussian with variance v in each of M coordinates.

    ||d + n||^2 has mean ||d||^2 + M v and variance 2 M v^2 + 4 v ||d||^2. Its excess over M v, unbiased for ||d||^2,
    counts as signal only above three standard deviations, ||d||^2 in the variance replaced by the excess: solved for
    the excess, above (18 + sqrt(324 + 18 M)) v. Noise alone passes with a probability below 0.00135 at any M.

    Args:
        noisy: (M,) d + n.
        noise_variance: v, scaled as the vector is.

    >>> denoised_norm(np.array([3.0, 4.0]), noise_variance=0.0), denoised_norm(np.array([3.0, 4.0]), 12.0)
    (Denoised(norm=5.0, swamped=False), Denoised(norm=1.0, swamped=True))
    """
    excess = float(noisy @ noisy) - noisy.size * noise_variance
    left = max(excess, 0.0)
    spread = math.sqrt(2 * noisy.size * noise_variance**2 + 4 * noise_variance * left)
    return Denoised(math.sqrt(left), swamped=noise_variance > 0 and excess <= 3 * spread)
