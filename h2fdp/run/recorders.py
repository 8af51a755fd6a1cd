"""What follows a run interval by interval: each recorder sees a plan before it is run, and the interval's row after.

Steps in between are announced to `listener`, so that a test can interrupt a run exactly at one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from h2fdp.privacy import NoiseSource, Release, ReleaseKind
from h2fdp.protocol import IntervalPlan
from h2fdp.records import JsonLines, MetricsRows, about, metrics_schema
from h2fdp.run.setup import IntervalMeter, RunSetup

Step = Literal[
    "hosts up",  # nothing of this run is on disk but its inputs
    "released",  # the releases of the interval are on disk; the interval has not begun
    "ran",  # the interval has run; nothing is recorded of it but its releases
    "checkpoint",  # the metrics are written; their checkpoint is not
    "results",  # all intervals are done and the model is written; the devices' scores and the summary are not
]


def _ignored(step: Step, interval: int) -> None:
    return


listener: Callable[[Step, int], None] = _ignored


def reached(step: Step, interval: int) -> None:
    """Announce a step; `interval` counts from 0 (for `checkpoint` and `results`: how many are done)."""
    listener(step, interval)


Row = dict[str, Any]
OnInterval = Callable[[Row], None]
_log = logging.getLogger(__name__)


class Recorder:
    """Follows a run. The methods do nothing by default."""

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        """Called when an interval is planned and has not begun.

        Raises:
            BudgetSpent: the interval must not begin.
        """

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """Called when the interval has run; `row` is its row of the metrics, to be completed or written."""

    def state(self) -> Any:
        """What it must know to continue, for a checkpoint: plain values and arrays."""

    def load(self, state: Any) -> None:
        """Continue from a `state`."""


@dataclass(frozen=True)
class Journal(Recorder):
    """The ledger of releases, and the controller's decisions: on disk, synced, before an interval begins."""

    ledger: JsonLines
    decisions: JsonLines
    meter: IntervalMeter

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        self.ledger.append(release.as_row() for release in releases)
        if plan.decision.reasons is not None:
            powers = self.meter.powers(plan)
            told = {} if powers is None else {"power_dbm": powers}
            self.decisions.append([dict(plan.decision.reasons) | told])

    def state(self) -> dict[str, Any]:
        """How far both files reach."""
        return {"ledger": vars(self.ledger.mark()), "decisions": vars(self.decisions.mark())}


class NoiseRange(Recorder):
    """The smallest and the largest standard deviation of each noise that was used."""

    def __init__(self, setup: RunSetup) -> None:
        self._mechanism = setup.noise
        self._sources = {subnet.name: subnet.adds_noise for subnet in setup.blueprint.facts}
        self._ranges: dict[tuple[str, str], tuple[float, float]] = {}

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        if self._mechanism is None:
            return
        for name, subnet in plan.subnets.items():
            for segment in range(len(subnet.segments)):
                kind = self._mechanism.kind(subnet.kind(segment))
                levels = subnet.aggregation(segment).noise_std
                self._note(kind, self._sources[name], levels[levels > 0])  # 0 where a node further up adds it
        for _, aggregation, level in plan.upper_noises:
            self._note(self._mechanism.kind(aggregation), "edge", np.array([level]))
        if plan.noise_std:
            self._note(self._mechanism.kind("global"), "cloud", np.array([plan.noise_std]))

    def _note(self, kind: ReleaseKind, source: NoiseSource, levels: np.ndarray) -> None:
        if levels.size:
            low, high = self._ranges.get((kind, source), (float("inf"), 0.0))
            self._ranges[kind, source] = (min(low, float(levels.min())), max(high, float(levels.max())))

    def summary(self) -> list[dict[str, Any]]:
        """A row for each kind of noise and who adds it."""
        return [
            {"kind": kind, "added_by": source, "smallest": low, "largest": high}
            for (kind, source), (low, high) in sorted(self._ranges.items())
        ]

    def state(self) -> list[tuple[str, str, float, float]]:
        return [(kind, source, low, high) for (kind, source), (low, high) in self._ranges.items()]

    def load(self, state: Iterable[tuple[str, str, float, float]]) -> None:
        self._ranges = {(kind, source): (low, high) for kind, source, low, high in state}


class CostMeter(Recorder):
    """Adds up what intervals cost under the fading that each of them draws."""

    def __init__(self, setup: RunSetup) -> None:
        self._costs_of = setup.interval_costs
        self._sums = dict.fromkeys(("energy_j", "delay_s", "clock_s"), 0.0)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """See `Recorder`; adds the running sums to the row."""
        for column, spent in self._costs_of(plan).items():
            self._sums[column] += spent
        row.update(self._sums)

    def state(self) -> dict[str, float]:
        return dict(self._sums)

    def load(self, state: Mapping[str, float]) -> None:
        self._sums = dict(state)


class MetricsTable(Recorder):
    """The rows of `metrics.parquet`, one for each interval that is done."""

    def __init__(self, setup: RunSetup) -> None:
        measured = ["validation_"] if setup.data.validation is not None else []
        measured += ["personal_"] if setup.blueprint.objective.personal else []
        others = [] if setup.blueprint.adaptive is None else ["clip_norm"]
        by = None if setup.noise is None else setup.accountant
        self.rows = MetricsRows(metrics_schema(*measured, observers=setup.observers, others=others, accountant=by))

    def after(self, plan: IntervalPlan, row: Row) -> None:
        self.rows.append(row)
        _log.debug("interval", extra=about(**row))

    def state(self) -> dict[str, Any]:
        return self.rows.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.rows.load(state)


def never() -> bool:
    """Never stop."""
    return False


def nothing() -> None:
    """Do nothing."""
    return


def _no_row(row: Row) -> None:
    return


@dataclass(frozen=True)
class RunCallbacks(Recorder):
    """What is called of a run from outside, and may stop it.

    Attributes:
        on_start: called when the hosts are up.
        on_interval: called with each row of the metrics.
        stop: asked before each interval; true ends the run cleanly.
    """

    on_start: Callable[[], None] = nothing
    on_interval: OnInterval = _no_row
    stop: Callable[[], bool] = never

    def after(self, plan: IntervalPlan, row: Row) -> None:
        self.on_interval(row)
