"""The exact epsilon of a Gaussian mechanism (Balle and Wang 2018, Theorem 8): an oracle independent of the package."""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def exact_gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The smallest epsilon with Phi(1/2z - eps z) - e^eps Phi(-1/2z - eps z) <= delta, z for a sensitivity of 1."""

    def excess(epsilon: float) -> float:
        half, scaled = 0.5 / noise_multiplier, epsilon * noise_multiplier
        return float(ndtr(half - scaled) - math.exp(epsilon + log_ndtr(-half - scaled)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    most = 1.0
    while excess(most) > 0:
        most *= 2
    return float(brentq(excess, 0.0, most, xtol=1e-12))
