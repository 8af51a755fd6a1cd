"""How close training comes to a stationary point: the bound of Theorem 4.3, as printed and as corrected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from h2fdp.theory.dispersion import dispersion_bounds
from h2fdp.theory.privacy_gap import privacy_gap
from h2fdp.theory.ranges import require
from h2fdp.theory.setting import LossConstants, PrivacyTerms, Timing

BoundForm = Literal["printed", "corrected"]


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
