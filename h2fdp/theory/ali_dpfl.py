"""ALI-DPFL, second version: how many local iterations a scarce number of rounds asks for, in closed form.

Ling et al., "ALI-DPFL: Differentially Private Federated Learning with Adaptive Local Iterations", Sec. IV; equation
numbers are that paper's. Every function is vectorised over its numbers.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from h2fdp.theory.dp_sgd import DpSgdNoise
from h2fdp.theory.ranges import require_between

Numbers = np.ndarray | float
OptimumForm = Literal["paper", "program"]


def ali_optimum(
    iterations: Numbers,
    curvature: Numbers,
    heterogeneity: Numbers,
    noise: DpSgdNoise,
    form: OptimumForm = "paper",
) -> np.ndarray:
    """tau* of (9), a real number of at least 1: where the bound G of (11) is least when the step size is 1 / (mu T).

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
