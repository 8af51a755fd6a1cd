"""The schedule of runs: what was chosen, and the decisions of a controller with its reasons in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from h2fdp.costs.kinds import budgets
from h2fdp.reports.figures import Column, CurveChart, ReportSection, Series, Table, chart, number, places
from h2fdp.wording import counted

MOST_ROWS = 60  # of the table of decisions
TERMS = ("energy", "delay", "gap")


def decision_columns(decisions: Sequence[Mapping[str, Any]], intervals: Sequence[int]) -> dict[str, Column]:
    """The columns of decisions: why each interval was planned so, problem P's objective and its three terms.

    Args:
        decisions: rows of `control.jsonl`; of an interval that was planned twice, the last one counts.
    """
    if not decisions:
        return {}
    by_interval = {row["interval"]: row for row in decisions}
    rows = [by_interval.get(interval) for interval in intervals]
    columns: dict[str, Column] = {"reason": [row and reason(row) for row in rows]}
    if "terms" in decisions[0]:
        columns["objective"] = [row and row["objective"] for row in rows]
        for term in TERMS:
            columns[f"term_{term}"] = [row and row["terms"][term] for row in rows]
    return columns


def reason(row: Mapping[str, Any]) -> str:
    """Why the controller chose this interval, in a sentence.

    >>> reason({"tau": 5, "objective": 3.5, "terms": {"energy": 1.0, "delay": 2.0, "gap": 0.5},
    ...         "runner_up": {"tau": 4, "objective": 3.75}, "swamped": [], "constants": {}})
    'P = 3.5 (energy 1 + delay 2 + gap 0.5, weighed, of all slots left); next best tau = 4 with 3.75'
    """
    if "terms" not in row:  # another schedule than H2FDP's controller
        facts = {**row.get("constants", {}), **row.get("noise", {})}
        return ", ".join(f"{key} = {number(value)}" for key, value in facts.items() if isinstance(value, (int, float)))
    parts = _of_the_run(row) if row.get("devices") == "turns" else _of_the_interval(row)
    if (power := row.get("power_dbm")) is not None:
        parts.append(f"they send with {power['least']:.1f} to {power['most']:.1f} dBm, {power['mean']:.1f} in the mean")
    if row["constants"].get("beta") is not None:
        parts.append(f"beta = {number(row['constants']['beta'])}")
    if row.get("swamped"):
        parts.append(f"swamped by noise: {', '.join(row['swamped'])}")
    return "; ".join(parts)


def _of_the_interval(row: Mapping[str, Any]) -> list[str]:
    """The objective that was minimised for this interval alone."""
    terms = " + ".join(f"{term} {number(row['terms'][term])}" for term in TERMS)
    parts = [f"P = {number(row['objective'])} ({terms}, weighed, of all slots left)"]
    other = row.get("runner_up")
    best = f"next best tau = {other['tau']} with {number(other['objective'])}" if other else "no other tau possible"
    return [*parts, best]


def _of_the_run(row: Mapping[str, Any]) -> list[str]:
    """The cost of this interval, and the plan of the whole run that was weighed."""
    weighed, other, constants = row["weighed"], row.get("runner_up"), row["constants"]
    further = {key: each for key, each in budgets().items() if each.counted and key in weighed}
    more = "".join(f" and {number(weighed[key])} {each.short}" for key, each in further.items())
    interval = f"this interval costs {_cost(weighed['joules'], weighed['seconds'])}{more}"
    chosen = _plan(constants["K"], row["tau"], weighed["run_joules"], weighed["run_seconds"], weighed["noise"])
    if other:
        best = f"next best {_plan(other['intervals'], other['tau'], other['joules'], other['seconds'], other['noise'])}"
    else:
        best = "no other plan fits"
    return [
        f"the run: {chosen}",
        best,
        interval,
        f"edge servers in turns, the cheapest {'grids' if 'gco2' in weighed else 'channels'} first",
    ]


def _plan(intervals: int, tau: int, joules: float, seconds: float, noise: float) -> str:
    length = f"{counted(intervals, 'interval')} of {counted(tau, 'step')}"
    return f"{length} for {_cost(joules, seconds)} at noise {number(noise)}"


def _cost(joules: float, seconds: float) -> str:
    return f"{number(joules)} J and {number(seconds)} s"


def decision_table(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """Decisions with their reasons, evenly thinned out where there are many."""
    kept = places(len(decisions), MOST_ROWS)
    heads = ("interval", "slot", "tau", "devices taking part", "step size", "why")
    return Table(heads, [_decision(decisions[place]) for place in kept])


def _decision(row: Mapping[str, Any]) -> list[Any]:
    chosen = row.get("participation", {})
    taking_part = "" if not chosen or set(chosen) == {"smallest", "median", "largest"} else sum(chosen.values())
    return [row["interval"], row["slot"], row["tau"], taking_part, row["step_size"], reason(row)]


def schedule(
    every: Sequence[Series],
    bands: str,
    folded: Mapping[str, Table | str] = MappingProxyType({}),
) -> ReportSection:
    """Interval length, participation and step size as they were chosen; what never changes is said in a sentence."""
    reasoned = any("reason" in series.columns for series in every)
    why = " Point at a curve of a controlled run for the controller's reasons." if reasoned else ""
    figures = [chart("tau", every, bands + why), chart("participants", every, bands), chart("step-size", every, bands)]
    if (terms := chart("terms", every)).curves:
        figures.append(terms)
    constants = {figure.key: value for figure in figures if (value := _constant(figure, every)) is not None}
    said = [f"{figure.y_title} {number(constants[figure.key])}" for figure in figures if figure.key in constants]
    lead = f"In every interval the same: {', '.join(said)}." if said else ""
    changing = [figure for figure in figures if figure.curves and figure.key not in constants]
    return ReportSection("schedule", "Schedule", lead, changing, folded=folded)


def _constant(figure: CurveChart, every: Sequence[Series]) -> float | None:
    """The one value of all curves of a figure; None where they differ, or where their points state reasons."""
    if any(curve.words for curve in figure.curves):
        return None
    values = {value for curve in figure.curves for value in every[curve.series].columns[curve.column]} - {None}
    return values.pop() if len(values) == 1 else None
