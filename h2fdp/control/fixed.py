"""The schedule of Algorithm 2: everything fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.control.observation import Observation
from h2fdp.control.schedule import Decision, Schedule

StepDecay = Literal["sqrt", "none"]


@dataclass(frozen=True)
class FixedSchedule(Schedule):
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
    repeats: ClassVar[bool] = True
    observes: ClassVar[bool] = False

    def ends(self, slot: int) -> bool:
        """Never before its last interval."""
        return False

    def decide(self, interval: int, slot: int) -> Decision:
        """See `Schedule.decide`."""
        divisor = math.sqrt(interval + 1) if self.decay == "sqrt" else 1.0
        return Decision(self.local_steps, self.step_size / divisor, shared(self.sizes, self.share))

    def observe(self, seen: Observation) -> None:
        """Nothing to learn."""

    def state(self) -> dict[str, Any]:
        """Nothing was learned."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Nothing was learned."""


def shared(sizes: np.ndarray, share: float) -> np.ndarray:
    """(N,) this share of each subnet's devices, rounded, at least one."""
    return np.clip(np.rint(share * sizes), 1, sizes).astype(np.int64)
