"""The fourth axis of a method: what is decided for the coming interval. Here: Algorithm 2, everything fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

StepDecay = Literal["sqrt", "none"]


@dataclass(frozen=True)
class Decision:
    """The plan of interval k (counted from 0).

    Attributes:
        local_steps: tau_k.
        step_size: eta_k.
        participation: (N,) s_c^k, how many devices of each subnet take part.
    """

    local_steps: int
    step_size: float
    participation: np.ndarray


class Schedule(Protocol):
    """Decides one interval after another."""

    def decide(self, interval: int) -> Decision:
        """The decision for `interval`, counted from 0."""
        ...


@dataclass(frozen=True)
class FixedSchedule:
    """The same tau and the same share of devices in each interval; the step size may fall as 1/sqrt(k+1).

    Attributes:
        sizes: (N,) s_c.
        share: of each subnet's devices; a subnet sends at least one.
    """

    local_steps: int
    step_size: float
    decay: StepDecay
    sizes: np.ndarray
    share: float = 1.0

    def decide(self, interval: int) -> Decision:
        """See `Schedule.decide`."""
        divisor = math.sqrt(interval + 1) if self.decay == "sqrt" else 1.0
        taking_part = np.clip(np.rint(self.share * self.sizes), 1, self.sizes).astype(np.int64)
        return Decision(self.local_steps, self.step_size / divisor, taking_part)
