"""What a run has cost so far: energy, delay, simulated time (H2FDP, Sec. 11)."""

from __future__ import annotations

from collections.abc import Mapping

from h2fdp.protocol import IntervalPlan
from h2fdp.run.preparation import Preparation

_COLUMNS = ("energy_j", "delay_s", "clock_s")


class CostWatch:
    """Adds up the costs of intervals under the fading that each of them draws."""

    def __init__(self, run: Preparation) -> None:
        self._run = run
        self._sums = dict.fromkeys(_COLUMNS, 0.0)

    def add(self, plan: IntervalPlan) -> None:
        """An interval that was run."""
        for column, spent in self._run.spent(plan).items():
            self._sums[column] += spent

    def load(self, columns: Mapping[str, float]) -> None:
        """Go on from these `columns`."""
        self._sums = {column: columns[column] for column in _COLUMNS}

    def columns(self) -> dict[str, float]:
        """Metrics columns: running sums."""
        return dict(self._sums)
