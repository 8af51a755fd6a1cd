"""The fourth axis of a method: who decides the coming interval, having seen the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from h2fdp.control.observation import Observation


@dataclass(frozen=True)
class Decision:
    """The plan of interval k (counted from 0).

    Attributes:
        local_steps: tau_k.
        step_size: eta_k.
        participation: (N,) s_c^k, how many devices of each subnet take part.
        reasons: why, as a row of `control.jsonl`; None where nothing was weighed.
    """

    local_steps: int
    step_size: float
    participation: np.ndarray
    reasons: Mapping[str, Any] | None = None


class Schedule(Protocol):
    """Decides one interval after another."""

    @property
    def repeats(self) -> bool:
        """Whether every interval has the same local steps and participation, known in advance."""
        ...

    @property
    def observes(self) -> bool:
        """Whether `observe` wants to be called."""
        ...

    def ends(self, slot: int) -> bool:
        """Whether training ends at this slot t_k, whatever the number of intervals."""
        ...

    def decide(self, interval: int, slot: int) -> Decision:
        """The decision for `interval`, counted from 0, which begins at `slot`; the same when asked again."""
        ...

    def observe(self, seen: Observation) -> None:
        """Learn from what the cloud received in the interval that just ended."""
        ...

    def state(self) -> dict[str, Any]:
        """What it has learned, in plain values and tensors, for a checkpoint."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        ...
