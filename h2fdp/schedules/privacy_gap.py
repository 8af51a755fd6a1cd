"""The privacy gap nu: part (b) of H2FDP's Theorem 4.3, what noise alone keeps between training and a stationary point.

Given tau, it is a sum over subnets, nu = scale(tau) sum_c w_c(s_c): what a controller minimises, one subnet at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from h2fdp.errors import UserError


def require(holds: bool, argument: str, value: object, expected: str) -> None:
    """Raise a `UserError` about `argument` unless `holds`.

    >>> require(False, "delta", 2.0, "a number between 0 and 1")
    Traceback (most recent call last):
        ...
    h2fdp.errors.UserError: delta: expected a number between 0 and 1, found 2.0
    """
    if not holds:
        raise UserError(f"expected {expected}, found {value}", key=argument)


def require_between(values: np.ndarray | float, lowest: float, highest: float, argument: str, expected: str) -> None:
    """Raise a `UserError` that names the first value outside lowest .. highest (both allowed); nan is outside.

    >>> require_between(np.array([3, 0]), 1, np.inf, "sizes", "at least one device in each subnet")
    Traceback (most recent call last):
        ...
    h2fdp.errors.UserError: sizes: expected at least one device in each subnet, found 0
    """
    array = np.asarray(values)
    if array.size and not (array.min() >= lowest and array.max() <= highest):  # nan fails both comparisons
        outside = array[~((array >= lowest) & (array <= highest))]
        require(False, argument, outside.flat[0], expected)


def require_count(value: int, lowest: int, argument: str) -> None:
    """Raise a `UserError` unless `value` is a whole number of at least `lowest`."""
    require(value >= lowest and value % 1 == 0, argument, value, f"a whole number of at least {lowest}")


@dataclass(frozen=True)
class PrivacyTerms:
    """What the noise is made from (Prop. 3.1), the same in all subnets.

    Attributes:
        parameters: M, the coordinates of the model.
        sampling_rate: q, the largest share of its records that a device draws for a step.
        clip_norm: G, the bound on each gradient's norm (20).
        epsilon: the target; infinity means no noise.
        delta: the target.
        c2: the paper's unnamed constant in (15), for noise at a trusted edge server.
        v2: its twin for noise at the devices.

    Raises:
        UserError: a number out of its range.
    """

    parameters: int
    sampling_rate: float
    clip_norm: float
    epsilon: float
    delta: float
    c2: float = math.sqrt(2)
    v2: float = math.sqrt(2)

    def __post_init__(self) -> None:
        require_count(self.parameters, 1, "parameters")
        require(0 < self.sampling_rate <= 1, "sampling_rate", self.sampling_rate, "a share above 0 and at most 1")
        require(self.epsilon > 0, "epsilon", self.epsilon, "a number above 0")
        require(0 < self.delta < 1, "delta", self.delta, "a number between 0 and 1")
        for name in ("clip_norm", "c2", "v2"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "a finite number above 0")

    @property
    def noise_energy(self) -> float:
        """M q^2 G^2 log(1/delta) / epsilon^2: what all noise energies are multiples of, a squared gradient.

        >>> round(PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9)).noise_energy, 9)
        9.0
        """
        relative = self.sampling_rate * self.clip_norm / self.epsilon
        return self.parameters * relative**2 * math.log(1 / self.delta)


def gap_scale(
    terms: PrivacyTerms,
    local_steps: np.ndarray | float,
    local_aggregations: np.ndarray | float,
    active_subnets: np.ndarray | int,
) -> np.ndarray:
    """4 tau (K_l^3 + 1) M q^2 G^2 log(1/delta) / (N^2 epsilon^2) (H2FDP, Eq. 33), a squared gradient.

    Args:
        local_steps: tau, any shape; shapes broadcast.
        local_aggregations: K_l in each interval; an array where it follows from tau.
        active_subnets: N, the subnets that take part.

    Raises:
        UserError: tau or N below 1, K_l below 0.

    >>> terms = PrivacyTerms(100, 0.1, 2.0, epsilon=2.0, delta=math.exp(-9))
    >>> gap_scale(terms, local_steps=np.array([1, 5]), local_aggregations=np.array([0, 2]), active_subnets=3)
    array([  4., 180.])
    """
    require_between(local_steps, 1, math.inf, "local_steps", "at least one local step")
    require_between(local_aggregations, 0, math.inf, "local_aggregations", "a number of at least 0")
    require_between(active_subnets, 1, math.inf, "active_subnets", "at least one subnet")
    growth = np.asarray(local_steps, float) * (np.asarray(local_aggregations, float) ** 3 + 1)
    return np.asarray(4 * terms.noise_energy * growth / np.asarray(active_subnets, float) ** 2)


def largest_first_step_size(smoothness: float, local_steps: int, intervals: int) -> float:
    """gamma = min{1/tau, 1/K_g} / beta, the largest that Theorem 4.3 allows.

    >>> largest_first_step_size(smoothness=2.0, local_steps=20, intervals=200)
    0.0025
    """
    return 1.0 / (smoothness * max(local_steps, intervals))
