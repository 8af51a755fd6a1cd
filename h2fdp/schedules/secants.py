"""Constants of the losses as ALI-DPFL and the resource-budget controller learn them, from what devices measure."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from h2fdp.schedules.observation import DeviceSecants
from h2fdp.theory import DriftConstants
from h2fdp.theory.estimation import SHORTEST_SECANT

CurvatureSource = Literal["gradients", "parameters"]

_LEAST_SMOOTHNESS = 1e-5  # of a device that moved at all


def drift_constants(seen: DeviceSecants) -> DriftConstants | None:
    """rho, beta and delta (or xi), the weighted means over devices; None where a measurement is no number.

    rho_i = |F_i(w_i) - F_i(w)| / ||w_i - w||, beta_i = ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w|| and at least 1e-5,
    both 0 within 1e-10 of w; delta_i = ||grad F_i(w) - grad F(w)||.
    """
    lipschitz = _secants(np.abs(seen.loss_local - seen.loss), seen.distance)
    smoothness = _secants(seen.gradient_change, seen.distance)
    floored = np.where(seen.distance <= SHORTEST_SECANT, 0.0, np.maximum(smoothness, _LEAST_SMOOTHNESS))
    means = [float(seen.weights @ values) for values in (lipschitz, floored, seen.divergence)]
    return DriftConstants(*means) if all(map(math.isfinite, means)) else None


def mean_curvature(seen: DeviceSecants, source: CurvatureSource) -> float | None:
    """mu, the weighted mean over the devices that ended more than 1e-10 from w; None where none did or it is no number.

    Args:
        source: `gradients` takes ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w||, as the paper; `parameters` the length
            of the last local step over ||w_i - w||, as the authors' program.
    """
    mass = float(seen.weights[~(seen.distance <= SHORTEST_SECANT)].sum())
    change = seen.gradient_change if source == "gradients" else seen.last_step
    total = float(seen.weights @ _secants(change, seen.distance))
    return total / mass if mass > 0 and math.isfinite(total) else None


def mean_loss_change(seen: DeviceSecants) -> float | None:
    """|sum_i p_i (F_i(w_i) - F_i before its last step)|, the program's Gamma; None where it is no number."""
    change = abs(float(seen.weights @ (seen.loss_local - seen.loss_before)))
    return change if math.isfinite(change) else None


def mean_loss(seen: DeviceSecants) -> float:
    """F(w), as the mini-batches have it."""
    return float(seen.weights @ seen.loss)


def _secants(changes: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """(n,) changes / distances, 0 within 1e-10."""
    still = distances <= SHORTEST_SECANT
    return np.asarray(np.where(still, 0.0, changes / np.where(still, 1.0, distances)))
