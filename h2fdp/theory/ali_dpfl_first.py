"""ALI-DPFL, first version: how many local iterations a scarce number of rounds asks for, by search.

Ling et al., first version, Theorems 1 and 2: the bounds of distributed gradient descent (`resource_budget`) with the
noise of DP-SGD added to the divergence of gradients.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from h2fdp.theory.dp_sgd import DpSgdNoise
from h2fdp.theory.ranges import require_count
from h2fdp.theory.resource_budget import DriftConstants, Numbers, loss_bound


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
