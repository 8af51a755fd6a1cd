"""The schedule of Algorithm 2: everything fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.estimation.feedback import Observation
from h2fdp.schedules.schedule import Decision, Schedule

StepDecay = Literal["sqrt", "none"]


@dataclass(frozen=True)
class FixedSchedule(Schedule):
    """The same tau and the same share of devices in each interval; the step size may fall as 1/sqrt(k+1).

    Attributes:
        sizes: (N,) s_c.
        share: of each subnet's devices; a subnet sends at least one.
        last_slot: where training ends, inside an interval if need be; None: with the last interval.
    """

    local_steps: int
    step_size: float
    decay: StepDecay
    sizes: np.ndarray
    share: float = 1.0
    last_slot: int | None = None
    observes: ClassVar[bool] = False

    @property
    def repeats(self) -> bool:
        """See `Schedule.repeats`; the last interval may be shorter."""
        return self.last_slot is None

    def ends(self, slot: int) -> bool:
        """See `Schedule.ends`."""
        return self.last_slot is not None and slot >= self.last_slot

    def decide(self, interval: int, slot: int) -> Decision:
        """See `Schedule.decide`."""
        divisor = math.sqrt(interval + 1) if self.decay == "sqrt" else 1.0
        left = self.local_steps if self.last_slot is None else self.last_slot - slot
        return Decision(min(self.local_steps, left), self.step_size / divisor, shared(self.sizes, self.share))

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
