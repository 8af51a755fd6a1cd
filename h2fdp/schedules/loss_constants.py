"""The controller's view of beta, the smoothness of the loss (H2FDP, Sec. 10).

It is estimated from what the cloud receives anyway, noisy uploads and its own models, at no cost of privacy, and
averaged, so that it settles over the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from h2fdp.schedules.schedule import IntervalObservation

SHORTEST_SECANT = 1e-10  # between two models whose gradients are compared


@dataclass(frozen=True)
class ReleasedInterval:
    """The released vectors of the cloud after interval k, for the n >= 1 subnets that took part.

    Attributes:
        uploads: (n, M) U_c, everything subnet c accumulated, about eta_k tau_k times a gradient, plus noise.
        noise_variance: (n,) of each coordinate of U_c, all noises of the interval together.
        weights: (n,) varrho_c, summing to 1.
        step_size: eta_k.
        local_steps: tau_k, or (n,) the gradients that each U_c accumulates where some devices did fewer steps.
        model: (M,) w(t_k), from which the interval started.
    """

    uploads: np.ndarray
    noise_variance: np.ndarray
    weights: np.ndarray
    step_size: float
    local_steps: float | np.ndarray
    model: np.ndarray

    @property
    def _per_gradient(self) -> np.ndarray:
        """(n,) or ()"""
        return np.asarray(1.0 / (self.step_size * self.local_steps))

    @property
    def gradients(self) -> np.ndarray:
        """(n, M) g_c = U_c / (eta_k tau_k): gradients averaged along the interval's path."""
        return np.asarray(self.uploads * self._per_gradient[..., None])

    @property
    def gradient_variance(self) -> np.ndarray:
        """(n,) of each coordinate of g_c."""
        return np.asarray(self.noise_variance * self._per_gradient**2)


@dataclass(frozen=True)
class Denoised:
    """A norm without the noise's expected share.

    Attributes:
        norm: the root of the squared norm less the expected noise energy, 0 when nothing is left.
        swamped: what is left is within three standard deviations of what noise alone leaves.
    """

    norm: float
    swamped: bool

    @property
    def clear(self) -> float | None:
        """The norm, or None when noise swamps it: what an average takes in."""
        return None if self.swamped else self.norm


def released_smoothness(current: ReleasedInterval, previous: ReleasedInterval | None) -> Denoised | None:
    """beta after interval k from its releases and those of interval k - 1; None where there is nothing to compare with:
    no interval before, or a model that stood still.

    beta = ||g^k - g^{k-1}|| / ||w(t_k) - w(t_{k-1})|| with g^k the weighted mean of g_c, without the expected energy of
    the noise.

    beta errs to the safe side, upwards: the noise of g^{k-1} also moved w(t_k), so that the squared change of
    gradients has, beyond both noises' energies, about 2 eta tau v^{k-1} tr(H), H the Hessian and v^{k-1} the noise
    variance of g^{k-1}. It is as noisy as one secant along one direction is.
    """
    distance = 0.0 if previous is None else float(np.linalg.norm(current.model - previous.model))
    if previous is None or distance < SHORTEST_SECANT:
        return None
    change = current.weights @ current.gradients - previous.weights @ previous.gradients
    variance = sum(float(each.weights**2 @ each.gradient_variance) for each in (current, previous))
    return denoised_norm(change / distance, variance / distance**2)


def denoised_norm(noisy: np.ndarray, noise_variance: float) -> Denoised:
    """||d|| from d + n, n Gaussian with variance v in each of M coordinates.

    ||d + n||^2 has mean ||d||^2 + M v and variance 2 M v^2 + 4 v ||d||^2. Its excess over M v, unbiased for ||d||^2,
    counts as signal only above three standard deviations, ||d||^2 in the variance replaced by the excess: solved for
    the excess, above (18 + sqrt(324 + 18 M)) v. Noise alone passes with a probability below 0.00135 at any M.

    Args:
        noisy: (M,) d + n.
        noise_variance: v, scaled as the vector is.

    >>> denoised_norm(np.array([3.0, 4.0]), noise_variance=0.0), denoised_norm(np.array([3.0, 4.0]), 12.0)
    (Denoised(norm=5.0, swamped=False), Denoised(norm=1.0, swamped=True))
    """
    excess = float(noisy @ noisy) - noisy.size * noise_variance
    left = max(excess, 0.0)
    spread = math.sqrt(2 * noisy.size * noise_variance**2 + 4 * noise_variance * left)
    return Denoised(math.sqrt(left), swamped=noise_variance > 0 and excess <= 3 * spread)


_WEIGHT = 0.2  # of the newest value: about the last five intervals count


def smoothed(value: float | None, new: float | None) -> float | None:
    """An exponential average with one more value; the same where there is none, the first value alone.

    >>> smoothed(4.0, 9.0), smoothed(4.0, None), smoothed(None, 8.0)
    (5.0, 4.0, 8.0)
    """
    return new if value is None else value if new is None else value + _WEIGHT * (new - value)


@dataclass(frozen=True)
class LearnedConstants:
    """Constants of the loss as far as they were estimated.

    Attributes:
        beta: smoothness; None where it was not estimated yet.
        swamped: the constants whose newest estimate drowned in noise, so that the last good value stays.
        previous: the last interval's releases, to compare the next with.
    """

    beta: float | None = None
    swamped: tuple[str, ...] = ()
    previous: ReleasedInterval | None = field(default=None, repr=False)

    def learned(self, seen: IntervalObservation) -> LearnedConstants:
        """The constants with the estimates of one more interval, from its released vectors."""
        if not seen.uploads:  # no device was there, so nothing was observed
            return self
        current = ReleasedInterval(
            np.stack([upload.numpy().astype(np.float64) for upload in seen.uploads]),
            seen.noise_variance,
            seen.weights,
            seen.step_size,
            seen.mean_steps,
            seen.model.numpy().astype(np.float64),
        )
        found = released_smoothness(current, self.previous)
        clear = None if found is None or found.clear is None or not math.isfinite(found.clear) else found.clear
        swamped = ("beta",) if found is not None and clear is None else ()
        return LearnedConstants(smoothed(self.beta, clear), swamped, current)

    def state(self) -> dict[str, Any]:
        """All of it in plain values and tensors."""
        return {"beta": self.beta, "swamped": self.swamped, "previous": _stored(self.previous)}

    def loaded(self, state: Mapping[str, Any]) -> LearnedConstants:
        """The constants as they were when `state` was taken."""
        return LearnedConstants(state["beta"], tuple(state["swamped"]), _restored(state["previous"]))


def _stored(interval: ReleasedInterval | None) -> dict[str, Any] | None:
    return None if interval is None else dict(vars(interval))


def _restored(state: Mapping[str, Any] | None) -> ReleasedInterval | None:
    if state is None:
        return None
    values: dict[str, Any] = {
        key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in state.items()
    }
    return ReleasedInterval(**values)
