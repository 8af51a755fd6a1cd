"""What the bounds are about: the losses, the times, the privacy (H2FDP, Secs. 3-4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from h2fdp.theory.ranges import require, require_between, require_count


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


def largest_first_step_size(smoothness: float, local_steps: int, intervals: int) -> float:
    """gamma = min{1/tau, 1/K_g} / beta, the largest that Theorem 4.3 allows.

    >>> largest_first_step_size(smoothness=2.0, local_steps=20, intervals=200)
    0.0025
    """
    return 1.0 / (smoothness * max(local_steps, intervals))
