"""Secure sums: an edge server that sees the sum of its devices' uploads, and devices that share one noise for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from h2fdp.privacy.trust_model import TrustModel, Visible
from h2fdp.privacy.words import NoiseSource


@dataclass(frozen=True)
class Tolerance:
    """What a secure sum withstands.

    Attributes:
        colluding: c, devices of each sum that tell an observer their shares of the noise.
        dropouts: d, devices that may vanish after the sum began: a number, or a share of those that begin if below 1.

    >>> Tolerance(colluding=1, dropouts=0.2).honest_shares(10), Tolerance(dropouts=3).lost(10)
    (7, 3)
    """

    colluding: int = 0
    dropouts: float = 0

    def lost(self, started: int) -> int:
        """d of so many devices."""
        return math.floor(self.dropouts * started + 1e-9) if self.dropouts < 1 else int(self.dropouts)

    def honest_shares(self, started: int) -> int:
        """s - c - d: shares of the noise that an observer is sure not to know; below 1 there is no secure sum."""
        return started - self.colluding - self.lost(started)


KEY_BITS = SHARE_BITS = 256  # of a public key, of a share of a secret: elliptic curves of Bonawitz et al. (2017)


@dataclass(frozen=True)
class SecureSum(TrustModel):
    """Each device adds a share of the noise that one trusted edge server would add; the edge server sees the sum alone.

    Of s devices that begin, d may drop out and c may tell their shares: device j adds sigma / (rho_j sqrt(s - c - d))
    to its upload (R8), so that at least s - d shares arrive, of which at least s - c - d are unknown, each of variance
    sigma^2 / (s - c - d) in the sum. What drops out after the shares were added cannot make them smaller: the weights
    of those who arrive are public and divide sensitivity and noise alike.

    Attributes:
        tolerance: beyond it a sum is never opened.
        rounding: b, where sums are of integers modulo 2^b; None for sums of real vectors.

    >>> shares = SecureSum(tolerance=Tolerance(colluding=1, dropouts=1)).exposure(np.full(6, 1 / 6), np.ones(6))
    >>> float((shares[:4] / 6) @ (shares[:4] / 6)) * 6**2  # four unknown shares: the noise of one trusted server
    1.0
    """

    noise_from: NoiseSource = "device"
    edge_sees: Visible = "sum"
    tolerance: Tolerance = field(default_factory=Tolerance)
    rounding: int | None = None

    @property
    def shares_noise(self) -> bool:
        return True

    @property
    def added_by(self) -> str:
        return "the devices, each a share"

    @property
    def colluding(self) -> int:
        return self.tolerance.colluding

    def opens(self, started: int, arrived: int) -> bool:
        return self.tolerance.honest_shares(started) >= 1 and arrived >= started - self.tolerance.lost(started)

    def exposure(self, weights: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """(..., s) that of one trusted edge server, in shares.

        Args:
            weights: (..., s) of all devices that begin: whether some will drop out is not known when noise is added.
        """
        honest = max(self.tolerance.honest_shares(weights.shape[-1]), 1)  # with none, no sum is opened
        largest = np.max(weights * exposures, axis=-1, keepdims=True)
        return np.asarray(largest / (weights * math.sqrt(honest)))

    def hidden_variance(self, parts: np.ndarray) -> float:
        squares = np.sort(parts**2)
        return float(squares[: max(len(squares) - self.colluding, 1)].sum())
