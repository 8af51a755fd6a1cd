"""How the runs ended, their accuracy, loss and cost, what they ran with, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from h2fdp.records.summary import reached
from h2fdp.reports.figures import Curve, CurveChart, Figure, ReportSection, Series, Table, number
from h2fdp.reports.run_view import WITHHELD, RunView


def known(series: Series, column: str) -> bool:
    """Whether there is anything in a column."""
    return any(value is not None for value in series.columns.get(column, ()))


def curves_of(
    every: Sequence[Series], column: str, label: str, style: int = 0, words: str | None = None, stepped: bool = False
) -> list[Curve]:
    """A column of every series that has it; with a band where the series has its ends (`_low`, `_high`)."""
    found = []
    for place, series in enumerate(every):
        if known(series, column):
            ends = (f"{column}_low", f"{column}_high")
            band = ends if all(known(series, end) for end in ends) else None
            said = words if words is not None and words in series.columns else None
            found.append(Curve(place, column, label, style, band, said, stepped))
    return found


def training(every: Sequence[Series], bands: str) -> ReportSection:
    """What was learned, and what it cost.

    Args:
        bands: a sentence about the bands around the curves; empty where there are none.
    """
    figures = [
        CurveChart(
            "accuracy",
            "Accuracy",
            f"Share of the test data that the global model classifies correctly, after each interval.{bands}",
            "test accuracy",
            [*curves_of(every, "accuracy", "test"), *curves_of(every, "validation_accuracy", "validation", 1)],
        ),
        CurveChart(
            "loss",
            "Loss",
            f"Mean loss of the global model on the test data, after each interval.{bands}",
            "test loss",
            [*curves_of(every, "loss", "test"), *curves_of(every, "validation_loss", "validation", 1)],
            scale="linear",
        ),
        CurveChart(
            "energy",
            "Energy",
            f"Energy of messages and local steps so far, in joules, summed over all nodes.{bands}",
            "energy so far (J)",
            curves_of(every, "energy_j", "energy"),
            scale="linear",
        ),
        CurveChart(
            "clock",
            "Time",
            f"Seconds on the simulated clock of the network, on which subnets work in parallel.{bands}",
            "simulated time (s)",
            curves_of(every, "clock_s", "simulated time"),
            scale="linear",
        ),
    ]
    return ReportSection("training", "Training and its cost", "", [figure for figure in figures if figure.curves])


def fairness(every: Sequence[Series]) -> ReportSection:
    """How evenly the devices are served."""
    curves = [
        *curves_of(every, "accuracy_trusted", "under trusted edge servers", 0),
        *curves_of(every, "accuracy_untrusted", "under untrusted edge servers", 1),
        *curves_of(every, "accuracy_secure-sum", "under secure sums", 2),
    ]
    caption = (
        "Accuracy of the final model on each device's own records, devices sorted: at 0.1 along the axis, a tenth of "
        "the devices have at most the accuracy of the curve. A flat curve is fair."
    )
    figure = CurveChart(
        "devices",
        "Accuracy over devices",
        caption,
        "accuracy on own records",
        curves,
        x="share",
        x_title="share of the devices",
    )
    return ReportSection("fairness", "Devices", "", [figure] if curves else [])


def schedule(
    every: Sequence[Series],
    bands: str,
    heats: Sequence[Figure] = (),
    folded: Mapping[str, Table | str] = MappingProxyType({}),
) -> ReportSection:
    """Interval length, participation and step size as they were chosen; what never changes is said in a sentence."""
    why = " Point at a curve of a controlled run for the controller's reasons." if _reasoned(every) else ""
    figures = [
        CurveChart(
            "tau",
            "Interval length",
            f"Local steps of each interval (tau_k).{bands}{why}",
            "local steps (tau_k)",
            curves_of(every, "local_steps", "local steps", words="reason", stepped=True),
        ),
        CurveChart(
            "participants",
            "Participation",
            f"Devices that contributed to an average in each interval, after drop-outs.{bands}",
            "devices",
            curves_of(every, "participants", "devices", words="reason", stepped=True),
        ),
        CurveChart(
            "step-size",
            "Step size",
            f"Step size of the devices in each interval (eta_k).{bands}",
            "step size (eta_k)",
            curves_of(every, "step_size", "step size", words="reason", stepped=True),
            scale="linear",
        ),
    ]
    terms = ("energy", "delay", "gap")
    parts = [
        curve for style, term in enumerate(terms) for curve in curves_of(every, f"term_{term}", term, style, "reason")
    ]
    if parts:
        figures.append(
            CurveChart(
                "terms",
                "Terms of the controller's objective",
                "The three weighted terms of problem P at the chosen interval length and participation: energy and "
                "delay of what remains of the run, and the gap that noise leaves (no unit; phi and the alphas are "
                "in it).",
                "weighted term of P",
                parts,
                scale="linear",
            )
        )
    constants = {figure.key: value for figure in figures if (value := _constant(figure, every)) is not None}
    said = [f"{figure.y_title} {number(constants[figure.key])}" for figure in figures if figure.key in constants]
    lead = f"In every interval the same: {', '.join(said)}." if said else ""
    changing = [figure for figure in figures if figure.curves and figure.key not in constants]
    return ReportSection("schedule", "Schedule", lead, [*changing, *heats], folded=folded)


def _constant(figure: CurveChart, every: Sequence[Series]) -> float | None:
    """The one value of all curves of a figure; None where they differ, or where their points tell reasons."""
    if any(curve.words for curve in figure.curves):
        return None
    values = {value for curve in figure.curves for value in every[curve.series].columns[curve.column]} - {None}
    return values.pop() if len(values) == 1 else None


def _reasoned(every: Sequence[Series]) -> bool:
    return any("reason" in series.columns for series in every)


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
