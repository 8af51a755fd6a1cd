"""How close training comes to a stationary point: the bounds of H2FDP's Prop. 4.2 and Theorem 4.3.

The theorem is here as printed and as corrected; README.md compares both with runs on quadratic losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from experiments.programs import require, require_between, require_count
from h2fdp.schedules.problem import PrivacyTerms, gap_scale, largest_first_step_size

BoundForm = Literal["printed", "corrected"]


@dataclass(frozen=True)
class LossConstants:
    """Assumptions 1 and 2 in numbers; all but `smoothness` in the unit of a gradient.

    Attributes:
        smoothness: beta, the Lipschitz constant of every device's gradient (21).
        minibatch_deviation: sigma, the root mean square distance of a mini-batch gradient from the whole (Ass. 1).
        network_dispersion: zeta, the largest distance of a subnet's gradient from the global one (22).
        subnet_dispersion: (N,) zeta_c, the largest distance of a device's gradient from its subnet's (23).

    Raises:
        UserError: a constant out of its range.
    """

    smoothness: float
    minibatch_deviation: float
    network_dispersion: float
    subnet_dispersion: np.ndarray

    def __post_init__(self) -> None:
        require(0 < self.smoothness < math.inf, "smoothness", self.smoothness, "a finite number above 0")
        for name in ("minibatch_deviation", "network_dispersion", "subnet_dispersion"):
            require_between(getattr(self, name), 0.0, math.inf, name, "numbers of at least 0")


@dataclass(frozen=True)
class Timing:
    """When what happens; the step size of interval k is eta_k = first_step_size / sqrt(k + 1).

    Attributes:
        local_steps: tau, in each interval.
        local_aggregations: K_l, in each interval; at most tau - 1, since the global one takes the last slot.
        intervals: K_g.
        first_step_size: gamma = eta_0.

    Raises:
        UserError: a number out of its range.
    """

    local_steps: int
    local_aggregations: int
    intervals: int
    first_step_size: float

    def __post_init__(self) -> None:
        require_count(self.local_steps, 1, "local_steps")
        require_count(self.local_aggregations, 0, "local_aggregations")
        require_count(self.intervals, 1, "intervals")
        require(
            self.local_aggregations < self.local_steps,
            "local_aggregations",
            self.local_aggregations,
            f"fewer than the {self.local_steps} local steps",
        )
        require(0 < self.first_step_size < math.inf, "first_step_size", self.first_step_size, "a finite number above 0")


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
    _require_setting(constants, timing, trust, sizes)
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


def _require_setting(constants: LossConstants, timing: Timing, trust: np.ndarray, sizes: np.ndarray) -> None:
    """Raise a `UserError` unless the arguments are of one network and the step size is one the theory allows."""
    subnets = len(constants.subnet_dispersion)
    _require_subnets(trust, subnets, "trust")
    _require_subnets(sizes, subnets, "sizes")
    require_between(sizes, 1, math.inf, "sizes", "at least one device in each subnet")
    largest = largest_first_step_size(constants.smoothness, timing.local_steps, timing.intervals)
    require(
        timing.first_step_size <= largest * (1 + 1e-9),  # a step size computed as the largest may be rounded up
        "first_step_size",
        timing.first_step_size,
        f"at most min(1/local_steps, 1/intervals)/smoothness = {largest:g}",
    )


def _require_subnets(values: np.ndarray, subnets: int, argument: str) -> None:
    """Raise a `UserError` unless `values` has one entry for each subnet."""
    require(values.shape == (subnets,), argument, f"shape {values.shape}", f"one value for each of {subnets} subnets")


@dataclass(frozen=True)
class ConvergenceBound:
    """A bound on the mean over intervals of ||grad F(w(t_k))||^2; all parts in that unit.

    Attributes:
        start: part (a1), what is left of the distance from the best loss at the start.
        drift: part (a2), what local steps cost: dispersion, step size, mini-batches.
        privacy: part (b), what noise costs.
    """

    start: float
    drift: float
    privacy: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.start + self.drift + self.privacy


def convergence_bound(
    form: BoundForm,
    loss_above_best: float,
    constants: LossConstants,
    timing: Timing,
    terms: PrivacyTerms,
    trust: np.ndarray,
    sizes: np.ndarray,
) -> ConvergenceBound:
    """Theorem 4.3 (H2FDP, Eq. 33).

    `printed` is for reproduction; a noise-free quadratic breaks it. `corrected`, with (a1) over gamma instead of
    times gamma, the true mean of step sizes, and the factor tau that (107) loses:

        2 (F(w(0)) - F*) / (gamma tau sqrt(K_g))
        + beta gamma (1 + ln K_g) / sqrt(K_g) [beta tau (B1^2 + B2^2) + tau G^2 + tau sigma^2]  +  2 (b)

    It holds without noise, since tau G^2 alone bounds the path, and with noise in every run on quadratic losses. Noise
    on a loss with a bend can break it where beta is far below 1 and subnets are millions: part (b) falls with N, the
    bias that noise gives to gradients does not, and B2^2, which should pay for it, is a bound in some units of length
    only (`dispersion_bounds`).

    Args:
        loss_above_best: F(w(0)) - F*.
        trust: (N,) p_c.
        sizes: (N,) s_c.

    Raises:
        UserError: a value out of its range, a step size above min{1/tau, 1/K_g} / beta.

    >>> constants = LossConstants(1.0, 0.0, network_dispersion=0.0, subnet_dispersion=np.zeros(1))
    >>> alone = PrivacyTerms(1, 0.1, clip_norm=1.0, epsilon=math.inf, delta=1e-5)
    >>> timing = Timing(local_steps=20, local_aggregations=0, intervals=200, first_step_size=1 / 200)
    >>> for form in ("printed", "corrected"):
    ...     bound = convergence_bound(form, 0.5, constants, timing, alone, np.ones(1), np.ones(1))
    ...     print(f"{bound.total:.5f} = {bound.start:.5f} + {bound.drift:.5f} + {bound.privacy:.5f}")
    0.00037 = 0.00002 + 0.00035 + 0.00000
    0.75164 = 0.70711 + 0.04454 + 0.00000
    """
    require(0 <= loss_above_best < math.inf, "loss_above_best", loss_above_best, "a finite number of at least 0")
    dispersion = dispersion_bounds(constants, timing, terms, trust, sizes)
    gap = float(privacy_gap(terms, timing.local_steps, timing.local_aggregations, trust, sizes))
    steps, intervals, first = timing.local_steps, timing.intervals, timing.first_step_size
    apart = constants.smoothness * steps * (dispersion.within + dispersion.between)
    minibatches = steps * constants.minibatch_deviation**2
    if form == "printed":
        start = 2 * first * loss_above_best / (steps * math.sqrt(intervals + 1))
        mean_step, path, gaps = first / math.sqrt(intervals + 1), terms.clip_norm**2, 1
    else:
        start = 2 * loss_above_best / (first * steps * math.sqrt(intervals))
        mean_step = first * (1 + math.log(intervals)) / math.sqrt(intervals)
        path, gaps = steps * terms.clip_norm**2, 2
    drift = constants.smoothness * mean_step * (apart + path + minibatches)
    return ConvergenceBound(start, drift, gaps * gap)
