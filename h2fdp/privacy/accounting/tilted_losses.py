"""Distributions of the privacy loss on a grid, and the same tilted exponentially.

Delta is a tail of the loss. A Fourier transform loses all masses below 1e-16 of the largest one, so it is taken of the
tilted distribution, mass times exp(tilt * position), whose bulk lies where the tail begins: there masses keep some 13
digits however small delta is (the change of measure of large deviations; Esscher 1932, Cramer 1938).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A law of the privacy loss in one direction, on multiples of an interval.

    Attributes:
        lowest: the grid position of the first mass.
        masses: (n,) probability of the losses lowest, lowest + 1, ... times the interval.
        infinite: probability of an infinite loss.
    """

    lowest: int
    masses: np.ndarray
    infinite: float
    _log_moments: dict[float, float] = field(default_factory=dict, repr=False)
    _variances: dict[float, float] = field(default_factory=dict, repr=False)

    @property
    def highest(self) -> int:
        """The grid position of the last mass."""
        return self.lowest + self.masses.size - 1

    def log_moment(self, tilt: float) -> float:
        """log E exp(tilt * position), finite losses only; -inf where there are none. Kept."""
        if tilt not in self._log_moments:
            exponents = self._exponents(tilt)
            top = float(exponents.max())
            total = float(np.exp(exponents - top).sum()) if top > -math.inf else 1.0
            self._log_moments[tilt] = top + math.log(total) + tilt * self.lowest
        return self._log_moments[tilt]

    def tilted(self, tilt: float) -> np.ndarray:
        """(n,) masses proportional to mass * exp(tilt * position), summing to 1."""
        weights = np.exp(self._exponents(tilt) + (tilt * self.lowest - self.log_moment(tilt)))
        return np.asarray(weights / weights.sum())

    def tilted_variance(self, tilt: float) -> float:
        """Of the position. Kept."""
        if tilt not in self._variances:
            weights, positions = self.tilted(tilt), np.arange(self.masses.size)
            self._variances[tilt] = float(weights @ (positions - float(weights @ positions)) ** 2)
        return self._variances[tilt]

    @cached_property
    def _log_masses(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            found: np.ndarray = np.log(self.masses)
        return found

    def _exponents(self, tilt: float) -> np.ndarray:
        return np.asarray(self._log_masses + tilt * np.arange(self.masses.size))


@lru_cache(maxsize=512)
def spectrum(losses: LossDistribution, tilt: float, length: int) -> np.ndarray:
    """(length // 2 + 1,) Fourier transform of the tilted masses, wrapped around `length`."""
    masses = losses.tilted(tilt)
    if masses.size > length:
        padded = np.zeros(-(-masses.size // length) * length)
        padded[: masses.size] = masses
        masses = padded.reshape(-1, length).sum(axis=0)
    found: np.ndarray = np.fft.rfft(masses, length)
    found.flags.writeable = False
    return found
