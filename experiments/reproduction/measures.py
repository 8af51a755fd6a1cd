"""One number for each run, from the rows of its metrics.

| measure | is | unit |
|---|---|---|
| final accuracy | mean test accuracy of the last tenth of the intervals | points |
| volatility | standard deviation of accuracy's change from interval to interval, over the last half | points |
| mean tau | mean interval length | slots |
| mean devices | mean number of devices of a subnet that take part | devices |
| energy to target | joules until the mean accuracy of 5 intervals reaches a target | J |
| delay to target | the same in seconds, summed over devices as the paper does | s |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

LAST_SHARE = 0.1
SMOOTHED = 5
PERCENT = 100.0


@dataclass(frozen=True)
class Measure:
    """A number for each run.

    Attributes:
        of: the rows of one run, ordered by interval, and the target -> the number; NaN where it is not reached.
        places: decimals that are worth saying.
        title: what an axis of it is called.
    """

    of: Callable[[pd.DataFrame, float], float]
    unit: str
    places: int
    title: str
    has_target: bool = False


def final_accuracy(rows: pd.DataFrame) -> float:
    """In points."""
    accuracy = rows["accuracy"].dropna()
    return PERCENT * float(accuracy.tail(math.ceil(LAST_SHARE * len(accuracy))).mean())


def volatility(rows: pd.DataFrame) -> float:
    """In points."""
    accuracy = rows["accuracy"].dropna().to_numpy()
    changes = np.diff(accuracy[len(accuracy) // 2 :])
    return PERCENT * float(changes.std(ddof=1)) if len(changes) > 1 else math.nan


def smoothed(rows: pd.DataFrame) -> pd.Series[float]:
    """Accuracy in points, each the mean of the last few."""
    return PERCENT * rows["accuracy"].ffill().rolling(SMOOTHED, min_periods=SMOOTHED).mean()


def cost_until(rows: pd.DataFrame, target: float, column: str) -> float:
    """What was spent when the smoothed accuracy first reached the target; NaN if it never did."""
    reached = rows.loc[(smoothed(rows) >= target).to_numpy(), column]
    return float(reached.iloc[0]) if len(reached) else math.nan


def reachable(runs: Iterable[pd.DataFrame], wanted: float) -> float:
    """The target itself where every run reaches it, else the largest smoothed accuracy that all reach."""
    return min([wanted, *(float(smoothed(rows).max()) for rows in runs)])


MEASURES: Mapping[str, Measure] = {
    "final accuracy": Measure(lambda rows, _: final_accuracy(rows), "points", 1, "test accuracy at the end, %"),
    "volatility": Measure(lambda rows, _: volatility(rows), "points", 2, "volatility of the accuracy, points"),
    "mean tau": Measure(
        lambda rows, _: float(rows["local_steps"].mean()), "slots", 2, "mean interval length $\\tau_k$"
    ),
    "mean devices": Measure(
        lambda rows, _: float(rows["devices_per_subnet"].mean()), "devices", 2, "mean devices of a subnet $s_c^k$"
    ),
    "energy to target": Measure(
        lambda rows, target: cost_until(rows, target, "energy_j"), "J", 0, "energy to the target, J", True
    ),
    "delay to target": Measure(
        lambda rows, target: cost_until(rows, target, "delay_s"), "s", 0, "delay to the target, s", True
    ),
}
