"""How far models drift apart inside an interval: Z1 within subnets, Z2 between them (H2FDP, Prop. 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from h2fdp.theory.privacy_gap import gap_weight
from h2fdp.theory.ranges import require, require_between, require_subnets
from h2fdp.theory.setting import LossConstants, PrivacyTerms, Timing, largest_first_step_size


@dataclass(frozen=True)
class DispersionBounds:
    """The constants of Prop. 4.2; Z1 and Z2 are at most `local_steps` eta_k times `within` and `between`.

    Attributes:
        within: B1^2, a squared gradient.
        between: B2^2, a squared gradient.
        subnet_drift: (N,) Phi_c, in the unit of a gradient.
        local_steps: tau.
    """

    within: float
    between: float
    subnet_drift: np.ndarray
    local_steps: int

    def within_subnets(self, step_size: float) -> float:
        """The bound on Z1 (28) at step size eta_k: eta_k tau B1^2 (32)."""
        return step_size * self.local_steps * self.within

    def between_subnets(self, step_size: float) -> float:
        """The bound on Z2 (29) at step size eta_k: eta_k tau B2^2 (32)."""
        return step_size * self.local_steps * self.between


def dispersion_bounds(
    constants: LossConstants, timing: Timing, terms: PrivacyTerms, trust: np.ndarray, sizes: np.ndarray
) -> DispersionBounds:
    """B1^2, B2^2 and Phi_c of Prop. 4.2, B1^2 with the mean over subnets of (2 sigma + zeta_c)^2 as in Prop. B.1.

    As printed they are no bounds in every unit: Z <= (eta tau)^2 B^2 is replaced by eta tau B^2, which needs
    eta tau <= 1 where the proposition grants eta tau <= 1/beta only; 2 B1^2 in Phi_c stands where the proof has
    a gradient, 2 B1; and sqrt(K_g) of the noise is paid for with 1/(beta eta). No run with beta >= 1 is known to
    break them.

    Args:
        trust: (N,) p_c.
        sizes: (N,) s_c.

    Raises:
        UserError: shapes that differ, a value out of its range, a step size above min{1/tau, 1/K_g} / beta.

    >>> constants = LossConstants(1.0, 0.0, network_dispersion=1.0, subnet_dispersion=np.array([0.5, 0.0]))
    >>> noiseless = PrivacyTerms(10, 0.1, 1.0, epsilon=math.inf, delta=1e-5)
    >>> bounds = dispersion_bounds(constants, Timing(1, 0, 4, 0.25), noiseless, np.zeros(2), np.array([5, 5]))
    >>> bounds.within, bounds.between, bounds.within_subnets(0.25)
    (0.5, 36.0, 0.125)
    """
    require_setting(constants, timing, trust, sizes)
    subnets = len(sizes)
    growth = (1 + 2 * timing.first_step_size * constants.smoothness) ** (timing.local_steps - 1) + 1
    deviation = 2 * constants.minibatch_deviation
    within = growth**2 * float(np.mean((deviation + constants.subnet_dispersion) ** 2))

    weights = gap_weight(trust, sizes, terms.c2, terms.v2)
    own_and_shared = math.sqrt(weights.sum()) + subnets * np.sqrt(weights)
    noise = 2 * timing.local_steps * math.sqrt(timing.local_aggregations * terms.noise_energy) / subnets
    others = 2 * within + deviation + constants.network_dispersion
    drift = (noise * own_and_shared + others) * growth + others

    stretch = (1 + timing.first_step_size * constants.smoothness) ** (2 * (timing.local_steps - 1))
    return DispersionBounds(within, stretch * float(np.mean(drift**2)), drift, timing.local_steps)


def require_setting(constants: LossConstants, timing: Timing, trust: np.ndarray, sizes: np.ndarray) -> None:
    """Raise a `UserError` unless the arguments are of one network and the step size is one the theory allows."""
    subnets = len(constants.subnet_dispersion)
    require_subnets(trust, subnets, "trust")
    require_subnets(sizes, subnets, "sizes")
    require_between(sizes, 1, math.inf, "sizes", "at least one device in each subnet")
    largest = largest_first_step_size(constants.smoothness, timing.local_steps, timing.intervals)
    require(
        timing.first_step_size <= largest * (1 + 1e-9),  # a step size computed as the largest may be rounded up
        "first_step_size",
        timing.first_step_size,
        f"at most min(1/local_steps, 1/intervals)/smoothness = {largest:g}",
    )
