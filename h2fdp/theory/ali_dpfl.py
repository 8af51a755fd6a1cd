"""ALI-DPFL, second version: how many local iterations a scarce number of rounds asks for, in closed form.

Ling et al., "ALI-DPFL: Differentially Private Federated Learning with Adaptive Local Iterations", Sec. IV; equation
numbers are that paper's. Every function is vectorised over its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from h2fdp.theory.dp_sgd import DpSgdNoise
from h2fdp.theory.ranges import require, require_between

Numbers = np.ndarray | float
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
