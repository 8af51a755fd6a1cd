"""ALI-DPFL: how many local iterations a scarce number of rounds asks for.

Ling et al., "ALI-DPFL: Differentially Private Federated Learning with Adaptive Local Iterations". Second version, Sec.
IV: in closed form; equation numbers are that paper's. First version, Theorems 1 and 2: by search over the bounds of
distributed gradient descent (`resource_budget`), with the noise of DP-SGD added to the divergence of gradients.
Every function is vectorised over its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from h2fdp.theory.ranges import require, require_between, require_count
from h2fdp.theory.resource_budget import DriftConstants, Numbers, drift_bound, loss_bound


@dataclass(frozen=True)
class DpSgdNoise:
    """What each local step adds to the sum of a batch's clipped gradients: N(0, sigma^2 C^2 I_d), divided by B.

    Attributes:
        clip_norm: C, the bound on a record's gradient.
        noise_multiplier: sigma.
        parameters: d, the coordinates of the model.
        batch: B, the records of the smallest expected batch (`least_batch`); it may be fractional.

    Raises:
        UserError: a number out of its range.
    """

    clip_norm: float
    noise_multiplier: float
    parameters: int
    batch: float

    def __post_init__(self) -> None:
        require(0 < self.clip_norm < math.inf, "clip_norm", self.clip_norm, "a finite number above 0")
        require(
            0 <= self.noise_multiplier < math.inf,
            "noise_multiplier",
            self.noise_multiplier,
            "a finite number of at least 0",
        )
        require_count(self.parameters, 1, "parameters")
        require(1 <= self.batch < math.inf, "batch", self.batch, "a finite number of at least 1")

    @property
    def energy(self) -> float:
        """sigma^2 C^2 d / B^2, the expected squared norm of a step's noise, a squared gradient.

        >>> DpSgdNoise(clip_norm=2.0, noise_multiplier=3.0, parameters=50, batch=10).energy
        18.0
        """
        return (self.noise_multiplier * self.clip_norm / self.batch) ** 2 * self.parameters

    @property
    def step_energy(self) -> float:
        """C^2 + sigma^2 C^2 d / B^2, the bound on the expected squared norm of a noisy gradient."""
        return self.clip_norm**2 + self.energy


def least_batch(sampling_rates: np.ndarray, records: np.ndarray) -> float:
    """B = min_i q_i D_i, and at least 1: a device whose batches are empty most of the time still divides by a record.

    >>> least_batch(np.array([0.5, 0.25]), np.array([10, 10])), least_batch(np.array([0.01]), np.array([30]))
    (2.5, 1.0)
    """
    return max(1.0, float(np.min(sampling_rates * records)))


OptimumForm = Literal["paper", "program"]


@dataclass(frozen=True)
class StronglyConvexLosses:
    """The assumptions on the devices' losses in numbers.

    Attributes:
        smoothness: L.
        curvature: mu, of strong convexity.
        heterogeneity: Gamma = F* - sum_i p_i F_i*, 0 where devices are alike.
        start_distance: Delta_1 = E ||w_1 - w*||^2.

    Raises:
        UserError: a number out of its range.
    """

    smoothness: float
    curvature: float
    heterogeneity: float
    start_distance: float

    def __post_init__(self) -> None:
        for name in ("smoothness", "curvature"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "a finite number above 0")
        for name in ("heterogeneity", "start_distance"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number of at least 0")


def ali_bound(
    local_steps: Numbers, iterations: Numbers, step_size: float, losses: StronglyConvexLosses, noise: DpSgdNoise
) -> np.ndarray:
    """h(tau) of (8): the bound on E F(w_T) - F* after T iterations, tau of them between two aggregations.

    Args:
        local_steps: tau; broadcasts against `iterations`, T.

    Raises:
        UserError: tau or T below 1, a step size that is none.

    >>> losses = StronglyConvexLosses(smoothness=1.0, curvature=2.0, heterogeneity=0.0, start_distance=1.0)
    >>> ali_bound(np.array([1, 3]), 100, 0.5, losses, DpSgdNoise(1.0, 0.0, 10, 1))
    array([0.025, 0.095])
    """
    require_between(iterations, 1, math.inf, "iterations", "at least one iteration")
    tau = np.asarray(local_steps, float)
    return np.asarray(tau / np.asarray(iterations, float) * ali_bound_of_rounds(tau, step_size, losses, noise))


def ali_bound_of_rounds(
    local_steps: Numbers, step_size: float, losses: StronglyConvexLosses, noise: DpSgdNoise
) -> np.ndarray:
    """G(tau) of (11), h(tau) = (tau / T) G(tau) (10): over the number of rounds T / tau, the bound.

    Raises:
        UserError: tau below 1, a step size that is none.
    """
    require_between(local_steps, 1, math.inf, "local_steps", "at least one local step")
    require(0 < step_size < math.inf, "step_size", step_size, "a finite number above 0")
    tau = np.asarray(local_steps, float)
    drift = (2 + step_size * losses.curvature) * noise.step_energy
    fixed = _fixed(losses.curvature, 2 * losses.heterogeneity / step_size, noise)
    half = losses.smoothness / 2
    return np.asarray(half * (drift * tau + losses.start_distance - 2 * drift + (drift + fixed) / tau))


def ali_optimum(
    iterations: Numbers,
    curvature: Numbers,
    heterogeneity: Numbers,
    noise: DpSgdNoise,
    form: OptimumForm = "paper",
) -> np.ndarray:
    """tau* of (9), a real number of at least 1: where G is least when the step size is 1 / (mu T).

    Args:
        iterations: T; all three broadcast.
        curvature: mu; at 0, or where it underflows, tau* is infinite.
        heterogeneity: Gamma.
        form: `paper` has 2 + 1/T in the denominator, as printed; `program` 2 + 2/T, as the authors' code.

    Raises:
        UserError: T below 1, a negative mu or Gamma.

    >>> ali_optimum(np.array([1, 2]), curvature=2.0, heterogeneity=0.5, noise=DpSgdNoise(1.0, 0.0, 10, 1))
    array([1.73205081, 2.04939015])
    """
    require_between(iterations, 1, math.inf, "iterations", "at least one iteration")
    require_between(curvature, 0, math.inf, "curvature", "a number of at least 0")
    require_between(heterogeneity, 0, math.inf, "heterogeneity", "a number of at least 0")
    total, mu = np.asarray(iterations, float), np.asarray(curvature, float)
    denominator = (2 + (1 if form == "paper" else 2) / total) * noise.step_energy
    with np.errstate(over="ignore"):  # a curvature near 0 has no optimum
        return np.sqrt(1 + _fixed(mu, 2 * np.asarray(heterogeneity, float) * total * mu, noise) / denominator)


def _fixed(curvature: Numbers, unlike: Numbers, noise: DpSgdNoise) -> np.ndarray:
    """4/mu^2 + 3 C^2 + (what heterogeneity adds) + sigma^2 C^2 d / B^2: what each round pays whatever its length."""
    with np.errstate(divide="ignore", over="ignore"):
        flat = 4 / np.square(np.asarray(curvature, float))
    return np.asarray(flat + 3 * noise.clip_norm**2 + unlike + noise.energy)


def iterations_in_reach(rounds: int, iterations: int, local_steps: int) -> int:
    """T = min{R_s tau, R_c}: the iterations that the rounds and the privacy budget both leave.

    >>> iterations_in_reach(158, 317, local_steps=1), iterations_in_reach(158, 317, local_steps=5)
    (158, 317)
    """
    return min(rounds * local_steps, iterations)


def with_noise(constants: DriftConstants, noise: DpSgdNoise) -> DriftConstants:
    """The constants with xi + 2 sqrt(d) sigma C / B for the divergence xi.

    >>> with_noise(DriftConstants(1.0, 1.0, divergence=1.0), DpSgdNoise(2.0, 3.0, parameters=4, batch=12)).divergence
    3.0
    """
    return replace(constants, divergence=constants.divergence + 2 * math.sqrt(noise.energy))


def ali_first_drift(steps: Numbers, step_size: float, constants: DriftConstants, noise: DpSgdNoise) -> np.ndarray:
    """h(x) of (11), its brackets as Theorem 1 derives them: the expected distance from centralised DP-SGD.

    Args:
        steps: x, whole numbers of at least 0; h(0) = h(1) = 0.
        constants: without the noise.

    >>> still = DriftConstants(1.0, smoothness=2.0, divergence=0.0)
    >>> ali_first_drift(np.array([0, 1, 2, 3]), 0.5, still, DpSgdNoise(1.0, 1.0, parameters=4, batch=1))
    array([0., 0., 2., 8.])
    """
    return drift_bound(steps, step_size, with_noise(constants, noise))


def ali_first_bound(
    local_steps: Numbers,
    iterations: Numbers,
    step_size: float,
    constants: DriftConstants,
    noise: DpSgdNoise,
    nearness: float,
    least_gap: float,
) -> np.ndarray:
    """G(tau) of (13): the bound on E F(w(T)) - F(w*); infinite where its bracket is not positive.

    Args:
        local_steps: tau; broadcasts against `iterations`, T.
        constants: rho, beta and xi, without the noise.
        nearness: omega.
        least_gap: lambda.

    Raises:
        UserError: as in `loss_bound`.
    """
    noisy = with_noise(constants, noise)
    return loss_bound(iterations, local_steps, step_size, noisy, nearness, least_gap) + math.sqrt(3) / 3


def ali_first_optimum(
    longest: int,
    rounds: int,
    iterations: int,
    step_size: float,
    constants: DriftConstants,
    noise: DpSgdNoise,
    nearness: float,
    least_gap: float,
) -> int | None:
    """tau*, where G is least over 1 .. longest, T(tau) = min{rounds tau, iterations} being what the budgets leave.

    Returns:
        The smallest of several that are equally good; None where the theorem says nothing of any.

    Raises:
        UserError: no round, no iteration, or as in `loss_bound`.

    >>> apart = DriftConstants(lipschitz=1.0, smoothness=1.0, divergence=0.1)
    >>> quiet = DpSgdNoise(0.1, 1.1, parameters=100, batch=75)
    >>> [ali_first_optimum(100, 100, left, 0.1, apart, quiet, 1.0, 1.0) for left in (50, 100, 300, 3000)]
    [1, 1, 3, 23]
    """
    require_count(rounds, 1, "rounds")
    require_count(iterations, 1, "iterations")
    taus = np.arange(1, longest + 1)
    within = np.minimum(rounds * taus, iterations)
    bounds = ali_first_bound(taus, within, step_size, constants, noise, nearness, least_gap)
    best = int(np.argmin(bounds))
    return 1 + best if np.isfinite(bounds[best]) else None
