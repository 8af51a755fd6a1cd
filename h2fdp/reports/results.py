"""How the runs ended, what they ran with, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from h2fdp.records.summary import reached
from h2fdp.reports.figures import ReportSection, Table
from h2fdp.reports.run_view import WITHHELD, RunView

_HEADS = ("run", "method", "seed", "state", "intervals", "accuracy", "mean of last 20", "best", "loss")
_COSTS = ("energy (J)", "delay (s)", "simulated time (s)", "wall time (s)")
_NOT_SETTINGS = ("name", "sweep")


def results(runs: Sequence[RunView]) -> ReportSection:
    """A row for each run."""
    rows = [_row(run) for run in runs]
    notes = [note for run in runs if (note := _note(run))]
    footnote = WITHHELD if any(run.withheld for run in runs) else ""
    tables = {"How each run ended": Table(_HEADS + _COSTS, rows)}
    return ReportSection("results", "Results", " ".join(notes), tables=tables, footnote=footnote)


def configuration(runs: Sequence[RunView]) -> ReportSection:
    """What differs between the runs, each configuration as a whole, and the versions."""
    tables = {}
    if len(runs) > 1:
        tables["Settings that differ"] = differences(runs)
    names = list(dict.fromkeys(name for run in runs for name in run.summary.get("versions") or {}))
    versions = [[name, *((run.summary.get("versions") or {}).get(name) for run in runs)] for name in names]
    folded: dict[str, Table | str] = {f"config.yaml of {run.name}": run.configuration_text for run in runs}
    folded["Versions"] = Table(("part", *(run.name for run in runs)), versions)
    return ReportSection("configuration", "Configuration and versions", "", tables=tables, folded=folded)


def differences(runs: Sequence[RunView]) -> Table:
    """The dotted keys whose values differ, with every run's value."""
    flat = [dict(_flat(run.configuration)) for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    differing = [key for key in keys if key not in _NOT_SETTINGS and len({repr(each.get(key)) for each in flat}) > 1]
    return Table(("key", *(run.name for run in runs)), [[key, *(each.get(key) for each in flat)] for key in differing])


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _row(run: RunView) -> list[Any]:
    keys = ("intervals", "accuracy", "accuracy_mean_last_20", "best_accuracy", "loss")
    costs = ("energy_j", "delay_s", "clock_s", "wall_s")
    told = run.summary if run.summary["state"] not in ("running", "killed") else run.summary | reached(run.metrics)
    return [run.name, *(told.get(key) for key in ("method", "seed", "state", *keys, *costs))]


def _note(run: RunView) -> str:
    state, summary = run.summary["state"], run.summary
    if since := summary.get("not_finite_from"):
        return f"The test loss of {run.name} is no finite number since interval {since}; its accuracy says nothing."
    if state == "running":
        return f"{run.name} is still running; its last checkpoint is shown."
    if state in ("interrupted", "killed", "stopped", "failed"):
        return f"{run.name} is {state}, so its end or last checkpoint is shown."
    if spent := summary.get("budget_spent_by"):
        return f"{run.name} stopped early: one more interval would exceed the budget of the observer {spent}."
    if fresh := summary.get("fresh_from"):
        return f"{run.name} continued with fresh draws from interval {', '.join(map(str, fresh))} on."
    return ""
