"""The privacy gap nu: part (b) of Theorem 4.3, what noise alone keeps between training and a stationary point.

Given tau, it is a sum over subnets, nu = scale(tau) sum_c w_c(s_c): what a controller minimises, one subnet at a time.
"""

from __future__ import annotations

import math

import numpy as np

from h2fdp.theory.ranges import require_between
from h2fdp.theory.setting import PrivacyTerms


def gap_scale(
    terms: PrivacyTerms,
    local_steps: np.ndarray | float,
    local_aggregations: np.ndarray | float,
    active_subnets: np.ndarray | int,
) -> np.ndarray:
    """4 tau (K_l^3 + 1) M q^2 G^2 log(1/delta) / (N^2 epsilon^2) (H2FDP, Eq. 33), a squared gradient.

    Args:
        local_steps: tau, any shape; shapes broadcast.
        local_aggregations: K_l in each interval; an array where it follows from tau.
        active_subnets: N, the subnets that take part.

    Raises:
        UserError: tau or N below 1, K_l below 0.

    >>> terms = PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9))
    >>> gap_scale(terms, local_steps=np.array([1, 5]), local_aggregations=np.array([0, 2]), active_subnets=3)
    array([  4., 180.])
    """
    require_between(local_steps, 1, math.inf, "local_steps", "at least one local step")
    require_between(local_aggregations, 0, math.inf, "local_aggregations", "a number of at least 0")
    require_between(active_subnets, 1, math.inf, "active_subnets", "at least one subnet")
    growth = np.asarray(local_steps, float) * (np.asarray(local_aggregations, float) ** 3 + 1)
    return np.asarray(4 * terms.noise_energy * growth / np.asarray(active_subnets, float) ** 2)


def gap_weight(trust: np.ndarray | float, size: np.ndarray | float, c2: float, v2: float) -> np.ndarray:
    """w_c(s) = p_c c2^2 / s^2 + (1 - p_c) v2^2 / s, infinite at s = 0; shapes broadcast.

    Args:
        trust: p_c, the probability that the edge server is trusted; 1 or 0 where it is known.
        size: s_c^k, the devices that take part.

    Raises:
        UserError: trust outside 0 .. 1, a size below 0.

    >>> gap_weight(trust=np.array([[1.0], [0.0]]), size=np.array([0, 1, 2]), c2=2.0, v2=1.0)
    array([[inf, 4. , 1. ],
           [inf, 1. , 0.5]])
    """
    require_between(trust, 0, 1, "trust", "a probability between 0 and 1")
    require_between(size, 0, math.inf, "sizes", "a number of devices of at least 0")
    trust, size = np.asarray(trust, float), np.asarray(size, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = (trust * c2**2 / size + (1 - trust) * v2**2) / size
    return np.where(size > 0, weight, np.inf)


def privacy_gap(
    terms: PrivacyTerms,
    local_steps: np.ndarray | float,
    local_aggregations: np.ndarray | float,
    trust: np.ndarray,
    sizes: np.ndarray,
) -> np.ndarray:
    """nu of whole networks (H2FDP, Eq. 33, part b), a squared gradient; infinite where a subnet has no device.

    Args:
        local_steps: tau; broadcasts against the leading axes of `sizes`, as (T, 1) against (S, N) to give (T, S).
        local_aggregations: K_l, broadcasts likewise.
        trust: (N,) or (..., N) p_c.
        sizes: (..., N) s_c^k, all N subnets take part.

    Raises:
        UserError: an argument out of its range, as in `gap_scale` and `gap_weight`.

    >>> terms = PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9), c2=1.0, v2=1.0)
    >>> privacy_gap(terms, np.array([1, 2]), 0, trust=np.array([1.0, 0.0, 0.5]), sizes=np.array([2, 4, 1]))
    array([ 6., 12.])
    """
    weights = gap_weight(trust, sizes, terms.c2, terms.v2).sum(axis=-1)
    subnets = np.broadcast_shapes(np.shape(trust), np.shape(sizes))[-1]
    scale = gap_scale(terms, local_steps, local_aggregations, subnets)
    with np.errstate(invalid="ignore"):  # without noise the scale is 0, and 0 times infinity is no number
        gap = scale * weights
    return np.where(np.isinf(weights), np.inf, gap)
