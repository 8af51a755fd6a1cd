"""Trials as they ended, and which are best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from h2fdp.experiment.sections import TuneSection
from h2fdp.tuning.space import Drawn

State = Literal["done", "pruned", "over a limit", "failed"]
COLUMNS = {"joules": "energy_j", "seconds": "clock_s"}  # of the metrics, which add up


@dataclass(frozen=True)
class Trial:
    """How a trial ended.

    Attributes:
        drawn: axis -> what was drawn.
        accuracy: on validation records, at the end; with the noise of the account where there is one.
        costs: joules, seconds and bytes of the whole run.
        checks: accuracy at the quarters of its intervals that were reached.
        reason: why it failed.
    """

    number: int
    drawn: Mapping[str, Drawn]
    state: State
    accuracy: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    checks: Sequence[float] = ()
    reason: str = ""

    def over(self, limits: Mapping[str, float]) -> dict[str, float]:
        """Limited cost -> by which part it is over its limit, at most 0 where it is not."""
        return {name: self.costs[name] / limit - 1 for name, limit in limits.items() if name in self.costs}


@dataclass(frozen=True)
class EarlyEnd:
    """When a trial ends early, see `sweeps.task.EarlyEnd`.

    Attributes:
        limits: column of the metrics -> the most of it.
        every: intervals between checks.
        thresholds: the accuracy that is asked for at each check that has one, the first at place 0.
    """

    limits: Mapping[str, float]
    every: int
    thresholds: Sequence[float] = ()

    def reason(self, row: Mapping[str, Any]) -> State | Literal[""]:
        """See `sweeps.task.EarlyEnd`."""
        if any(row[column] > limit for column, limit in self.limits.items()):
            return "over a limit"
        check, rest = divmod(int(row["interval"]), self.every)
        if rest or not 1 <= check <= len(self.thresholds) or row.get("validation_accuracy") is None:
            return ""
        return "pruned" if row["validation_accuracy"] < self.thresholds[check - 1] else ""


def is_done(trial: Trial, limits: Mapping[str, float]) -> bool:
    """Whether it came to its end within the limits."""
    return trial.state == "done" and all(excess <= 0 for excess in trial.over(limits).values())


def best_of(trials: Sequence[Trial], section: TuneSection) -> Trial | None:
    """The most accurate one within the limits; of equal ones the first. None where none is done."""
    done = [trial for trial in trials if is_done(trial, section.limits.stated())]
    return max(done, key=lambda trial: (trial.accuracy or 0.0, -trial.number), default=None)


def front_of(trials: Sequence[Trial], section: TuneSection, costs: Sequence[str] | None = None) -> list[Trial]:
    """The trials within the limits that no other one beats in every objective, by falling accuracy.

    Args:
        costs: that count beside accuracy; by default those of the objective.
    """
    names = section.costs if costs is None else tuple(costs)
    done = [trial for trial in trials if is_done(trial, section.limits.stated())]
    values = {trial.number: (-(trial.accuracy or 0.0), *(trial.costs[name] for name in names)) for trial in done}

    def beaten(trial: Trial) -> bool:
        own = values[trial.number]
        return any(
            other != own and all(theirs <= ours for theirs, ours in zip(other, own, strict=True))
            for other in values.values()
        )

    return sorted((trial for trial in done if not beaten(trial)), key=lambda trial: values[trial.number])
