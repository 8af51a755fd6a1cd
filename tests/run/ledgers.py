"""Devices of ledger rows, and the account of one Gaussian by a closed form."""

import math

from scipy import stats

DELTA = 1e-5


def members(ranges):
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def gaussian_epsilon(mu):
    """Of one Gaussian mechanism at DELTA (Balle and Wang 2018), by bisection."""

    def delta(epsilon):
        near, far = stats.norm.cdf(mu / 2 - epsilon / mu), stats.norm.cdf(-mu / 2 - epsilon / mu)
        return near - math.exp(epsilon) * far

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high
