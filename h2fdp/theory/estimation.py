"""Constants of the loss from exact gradients: smoothness, mini-batch deviation, dispersion.

After Lin et al. 2021 ("Semi-Decentralized Federated Learning with Cooperative D2D Local Model Aggregations",
Sec. IV-C). Gradients are of private data: what these functions return leaks, unless it is made private.
"""

from __future__ import annotations

import numpy as np

SHORTEST_SECANT = 1e-10


def secant_smoothness(gradients: np.ndarray, gradients_here: np.ndarray, points: np.ndarray, here: np.ndarray) -> float:
    """beta = max_i ||g_i(w_i) - g_i(w)|| / ||w_i - w||, never above the true one; 0 when all w_i are within 1e-10 of w.

    Args:
        gradients: (I, M) g_i(w_i), each on the mini-batch of `gradients_here`.
        gradients_here: (I, M) g_i(w).
        points: (I, M) w_i.
        here: (M,) w.

    >>> secant_smoothness(np.array([[6.0], [1.0]]), np.array([[2.0], [1.0]]), np.array([[4.0], [0.0]]), np.array([2.0]))
    2.0
    """
    distances = np.linalg.norm(points - here, axis=-1)
    far = distances >= SHORTEST_SECANT
    changes = np.linalg.norm(gradients - gradients_here, axis=-1)
    return float(np.max(changes[far] / distances[far], initial=0.0))


def minibatch_deviation(first: np.ndarray, second: np.ndarray) -> float:
    """sigma = max_i ||g_i - g_i'|| / sqrt(2), from two independent mini-batches of each device at the same point.

    The mean square over mini-batches of one device's is its sigma_i^2; the maximum over devices tends to lie above.

    Args:
        first: (I, M) g_i.
        second: (I, M) g_i'.

    >>> minibatch_deviation(np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]]))
    1.0
    """
    return float(np.max(np.linalg.norm(first - second, axis=-1))) / float(np.sqrt(2))


def gradient_dispersion(gradients: np.ndarray, weights: np.ndarray) -> float:
    """The largest distance from the weighted mean: zeta_c of devices in a subnet (23), zeta of subnets (22).

    Args:
        gradients: (n, M) g_i of the subnet's active devices, or g_c of the subnets, at one point.
        weights: (n,) rho_i or varrho_c, summing to 1.

    >>> gradient_dispersion(np.array([[0.0, 0.0], [6.0, 8.0]]), np.array([0.5, 0.5]))
    5.0
    """
    return float(np.max(np.linalg.norm(gradients - weights @ gradients, axis=-1)))
