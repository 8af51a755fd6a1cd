"""The mean cost of a message over fading: E[1 / ln(1 + SNR X)], X exponential with mean 1 and floored.

Quadrature, not sampling: with y = ln x the integrand e^y exp(-e^y) / ln(1 + SNR e^y) is smooth at every SNR (its
nearest singularities lie pi off the real axis, and exp(-e^y) falls fast beyond y = 0), so a few Gauss-Legendre points
for each stretch of y give close to all digits.
"""

from __future__ import annotations

import numpy as np

from h2fdp.topology.arrays import Floats

_FARTHEST = 45.0  # X is above it with probability 3e-20, and costs less there than anywhere below
_LONGEST_PANEL = 4.5  # in y
_POINTS = 24  # in each panel
_AT_ONCE = 1 << 15  # devices whose arrays stay in the processor's cache


def mean_inverse_log(snr: Floats, floor: float) -> Floats:
    """E[1 / ln(1 + SNR max(X, floor))] for X ~ Exp(1); times ln 2 / W it is the mean of 1/R.

    Args:
        snr: (I,) signal-to-noise ratios where |u|^2 = 1, above 0.
        floor: of the fading's power, above 0.

    Returns:
        (I,) the means, to a relative accuracy of 1e-11 or better.
    """
    points, weights = _rule(floor)
    mean = np.empty_like(snr)
    for start in range(0, len(snr), _AT_ONCE):
        chunk = snr[start : start + _AT_ONCE]
        total = np.zeros_like(chunk)
        for point, weight in zip(points, weights, strict=True):
            total += weight / np.log1p(chunk * point)
        mean[start : start + _AT_ONCE] = total
    return mean


def _rule(floor: float) -> tuple[list[float], list[float]]:
    """Points x and weights of E[f(max(X, floor))] = P[X < floor] f(floor) + the integral of f(x) e^-x beyond."""
    points, weights = [floor], [-float(np.expm1(-floor))]
    if floor < _FARTHEST:
        span = float(np.log(_FARTHEST / floor))
        panels = int(np.ceil(span / _LONGEST_PANEL))
        nodes, node_weights = np.polynomial.legendre.leggauss(_POINTS)
        half = span / panels / 2
        for panel in range(panels):
            x = floor * np.exp(half * (2 * panel + 1 + nodes))
            points += x.tolist()
            weights += (half * node_weights * x * np.exp(-x)).tolist()
    return points, weights
