"""Named steps of a run, announced when they are reached, so that a test can interrupt a run exactly at one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Step = Literal[
    "hosts up",  # nothing of this run is on disk but its inputs
    "released",  # the releases of the interval are on disk; the interval has not begun
    "ran",  # the interval has run; nothing is recorded of it but its releases
    "checkpoint",  # the metrics are written; their checkpoint is not
    "results",  # all intervals are done and the model is written; the devices' scores and the summary are not
]


def _nobody(step: Step, interval: int) -> None:
    return


listener: Callable[[Step, int], None] = _nobody


def reached(step: Step, interval: int) -> None:
    """Announce a step; `interval` counts from 0 (for `checkpoint` and `results`: how many are done)."""
    listener(step, interval)
