"""How the step size of an experiment file falls over the intervals of a run."""

from __future__ import annotations

import math
from typing import Literal

StepDecay = Literal["sqrt", "linear", "none"]


def decayed(step_size: float, decay: StepDecay, interval: int, intervals: int) -> float:
    """eta_k: `sqrt` divides by sqrt(k + 1), `linear` falls in equal parts towards 0, which the interval K_g would have.

    The sensitivity of a release, and the noise on it, are proportional to the step size, so that a decay changes no
    account: every release keeps its noise multiplier.

    Args:
        step_size: eta of the first interval.
        interval: k, counted from 0.
        intervals: K_g, those that are planned, also where the run ends before.

    >>> [round(decayed(0.6, "linear", k, 3), 3) for k in range(3)]
    [0.6, 0.4, 0.2]
    >>> [decayed(0.6, "sqrt", k, 4) for k in (0, 3)]
    [0.6, 0.3]
    """
    assert 0 <= interval < intervals, "intervals are those of the plan"
    if decay == "linear":
        return step_size * (intervals - interval) / intervals
    return step_size / math.sqrt(interval + 1) if decay == "sqrt" else step_size
