"""Sensitivity: how far one record can move an upload (H2FDP, Lemma 3.2, Eqs. 16-19)."""

from __future__ import annotations

import math


def accumulated_gradient_sensitivity(step_size: float, steps: float, clip_norm: float, weight: float = 1.0) -> float:
    """L2 sensitivity of `weight` times an update of `steps` clipped local steps: 2 eta m G weight.

    With `weight` 1 it is a device's own upload (18)-(19). In an edge server's average, `weight` is the device's
    share rho; for equal shares 1/s_c it is (16)-(17), and the whole average's sensitivity is that of the largest
    share - a size-weighted average does not get the sensitivity of a uniform one.

    Args:
        step_size: eta_k of the interval.
        steps: tau_k (``sensitivity: paper``) or the local steps really accumulated in this upload (``tight``).
        clip_norm: G, the bound on the norm of each (mini-batch) gradient.

    >>> accumulated_gradient_sensitivity(step_size=0.1, steps=20, clip_norm=1.0, weight=1 / 5)
    0.8
    """
    return 2.0 * step_size * steps * clip_norm * weight


ESTIMATE_BATCHES = 2  # mini-batches behind an estimate: each is a draw of a record


def estimate_sensitivity(numbers: int) -> float:
    """L2 sensitivity of `numbers` estimates for a controller, each clipped to a range and divided by it.

    One record changes each number by at most 1 as soon as it is in either of the two mini-batches behind them. In the
    account an upload of m draws moves by sensitivity / m at least when the record is drawn at all, hence the factor.

    >>> estimate_sensitivity(4)
    4.0
    """
    return ESTIMATE_BATCHES * math.sqrt(numbers)
