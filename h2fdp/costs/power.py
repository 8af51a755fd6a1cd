"""Power control: with which power a device sends, from its channel and from what a joule and a second weigh.

A message of b bits takes t = b / (W log2(1 + g p)) seconds and e = p t joules at power p, where g p is the
signal-to-noise ratio (H2FDP, Appendix D; the paper's devices all send with 24 dBm). Weighed with w1 for a joule and w2
for a second it costs

    (b ln 2 / W) (w1 p + w2) / ln(1 + g p)

which falls and then rises in p, an affine function over a concave one. With u = ln(1 + g p) its minimum is where

    h(u) = e^u (u - 1) + 1 = w2 g / w1,    so u = 1 + W0((w2 g / w1 - 1) / e)

with Lambert's W, and the best power of a range is that one, or the end of the range that is nearest to it. Without w2
it is the least power, as the joules of a bit only fall with the power; without w1 it is the most.

W0 loses its digits near -1/e, where a second weighs little, and its argument may be too large for a float. So
ln h(u) = ln(w2 g / w1) is solved for ln u by Newton's method. All coefficients of h as a power series are positive, so
that ln h is convex in ln u: from the right Newton's steps never overshoot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from h2fdp.network.devices import Floats

_DECIBEL = float(np.log(10.0)) / 10  # of natural logarithms
_STEPS = 8  # after which the last one changes no digit
_SMALL = 0.5  # below this u, h is summed as a series
_TERMS = 14
_TINY = 1e-8  # below this u, e^u - 1 is u e^(u / 2) to all digits


@dataclass(frozen=True)
class PowerRule:
    """How each device chooses its power in each interval: between `least_dbm` and its own, at the least weighed cost.

    Attributes:
        least_dbm: below which no device sends.
        per_joule, per_second: w1 and w2, what a joule and a second weigh; at least 0. Where neither weighs anything,
            devices send with their own power.
    """

    least_dbm: float
    per_joule: float
    per_second: float

    def chosen_dbm(self, own_dbm: Floats, snr: Floats) -> Floats:
        """(I,) the power of each device, in decibels above a milliwatt.

        Args:
            own_dbm: (I,) the most that each sends with, above `least_dbm`.
            snr: (I,) the signal-to-noise ratio at that power, above 0.

        >>> PowerRule(0.0, 1.0, 0.0).chosen_dbm(np.array([24.0]), np.array([100.0])).tolist()
        [0.0]
        >>> PowerRule(0.0, 1.0, 0.25).chosen_dbm(np.array([24.0]), np.array([100.0])).round(2).tolist()
        [19.63]
        """
        if not self.per_joule:
            return own_dbm
        if not self.per_second:
            return np.full(own_dbm.shape, self.least_dbm)
        own_watts = _DECIBEL * (own_dbm - 30)  # its logarithm, as all below
        worth = np.log(snr) + np.log(self.per_second) - np.log(self.per_joule) - own_watts
        share = _growth(_solved(worth)) - np.log(snr)  # of the own power
        chosen: Floats = np.minimum(np.maximum(own_dbm + share / _DECIBEL, self.least_dbm), own_dbm)
        return chosen


def _solved(worth: Floats) -> Floats:
    """ln u at which ln h(u) is this.

    As h(u) >= u^2 / 2, and h(u) >= e^u from u = 2 on, Newton's method begins on the right.
    """
    root: Floats = np.minimum((worth + np.log(2.0)) / 2, np.log(np.maximum(worth, 2.0)))
    for _ in range(_STEPS):
        value, slope = _logarithm(np.exp(root))
        root = root - (value + 2 * root - worth) / slope
    return root


def _logarithm(u: Floats) -> tuple[Floats, Floats]:
    """ln(h(u) / u^2), and the slope of ln h in ln u, which is u^2 / (u - 1 + e^-u); also at u = 0."""
    small = np.minimum(u, _SMALL)
    series, term = np.zeros_like(u), np.full_like(u, 0.5)  # h / u^2 = sum_k u^k (k + 1) / (k + 2)!
    for place in range(_TERMS):
        series = series + (place + 1) * term
        term = term * small / (place + 3)
    large = np.maximum(u, _SMALL)
    rest = large - 1 + np.exp(-large)
    of_large = large + np.log(rest) - 2 * np.log(large)
    is_small = u < _SMALL
    return (
        np.where(is_small, np.log(series), of_large),
        np.where(is_small, np.exp(small) / series, large**2 / rest),
    )


def _growth(logarithm: Floats) -> Floats:
    """ln(e^u - 1) for u by its logarithm; also where u is too small for a float."""
    u = np.exp(logarithm)
    large = np.maximum(u, _TINY)
    return np.where(u < _TINY, logarithm + u / 2, large + np.log(-np.expm1(-large)))
