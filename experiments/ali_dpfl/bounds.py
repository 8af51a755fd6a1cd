"""ALI-DPFL: how many local iterations a scarce number of rounds asks for.

Ling et al., "ALI-DPFL: Differentially Private Federated Learning with Adaptive Local Iterations". Second version, Sec.
IV: in closed form; equation numbers are that paper's. First version, Theorems 1 and 2: by search over the bounds of
distributed gradient descent (`drift`), with the noise of DP-SGD added to the divergence of gradients.
Every function is vectorised over its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from experiments.programs import require, require_between, require_count
from experiments.resource_budget.drift import DeviceSecants, DriftConstants, Numbers, loss_bound, secants
from h2fdp.schedules.loss_constants import SHORTEST_SECANT


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
CurvatureSource = Literal["gradients", "parameters"]


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


def with_noise(constants: DriftConstants, noise: DpSgdNoise) -> DriftConstants:
    """The constants with xi + 2 sqrt(d) sigma C / B for the divergence xi.

    >>> with_noise(DriftConstants(1.0, 1.0, divergence=1.0), DpSgdNoise(2.0, 3.0, parameters=4, batch=12)).divergence
    3.0
    """
    return replace(constants, divergence=constants.divergence + 2 * math.sqrt(noise.energy))


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


def mean_curvature(seen: DeviceSecants, source: CurvatureSource) -> float | None:
    """mu, the weighted mean over the devices that ended more than 1e-10 from w; None where none did or it is no number.

    Args:
        source: `gradients` takes ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w||, as the paper; `parameters` the length
            of the last local step over ||w_i - w||, as the authors' program.
    """
    mass = float(seen.weights[~(seen.distance <= SHORTEST_SECANT)].sum())
    change = seen.gradient_change if source == "gradients" else seen.last_step
    total = float(seen.weights @ secants(change, seen.distance))
    return total / mass if mass > 0 and math.isfinite(total) else None


def mean_loss_change(seen: DeviceSecants) -> float | None:
    """|sum_i p_i (F_i(w_i) - F_i before its last step)|, the program's Gamma; None where it is no number."""
    change = abs(float(seen.weights @ (seen.loss_local - seen.loss_before)))
    return change if math.isfinite(change) else None
