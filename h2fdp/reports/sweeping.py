"""The parts of a sweep's report: what each point of the grid reached, and the grid along its keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from h2fdp.privacy.words import UNTARGETED
from h2fdp.reports.figures import Explorer, ReportSection, Series, Table, number
from h2fdp.reports.observers import epsilon_figures, lead_of, observers_in, without_claims
from h2fdp.reports.run_view import WITHHELD
from h2fdp.reports.sweep_view import GridPoint, SweepView, shortened_keys, word
from h2fdp.reports.training import schedule, training

_BANDS = " Means over seeds, with bands for their 95 % intervals (Student's t)."
_LEARNED = {"accuracy": "final test accuracy", "loss": "final test loss", "epsilon_claimed": "epsilon claimed"}
_COSTS = {
    "energy_j": "energy (J)",
    "delay_s": "delay (s)",
    "clock_s": "simulated time (s)",
}
_WITH_INTERVAL = ("accuracy", "loss")  # in the table; all of them are in the explorer


def sweep_sections(sweep: SweepView, *, withheld: bool = False) -> tuple[list[ReportSection], list[Series]]:
    """All parts of the report of a sweep, and the series that its curves show.

    Args:
        withheld: what no epsilon covers was left out, which the page says.
    """
    every = [point.series for point in sweep.points]
    explorer = [_explorer(sweep)] if sweep.keys and sweep.points else []
    folded: dict[str, Table | str] = {"study.yaml": sweep.study} if sweep.study else {}
    return [
        ReportSection(
            "results", "Results", _standing(sweep), tables=_tables(sweep), footnote=WITHHELD if withheld else ""
        ),
        ReportSection("grid", "The grid", "", explorer),
        training(every, _BANDS),
        _privacy(sweep, every),
        schedule(every, _BANDS),
        ReportSection("configuration", "Configuration", "", folded=folded),
    ], every


def _standing(sweep: SweepView) -> str:
    counts = Counter(sweep.states.values())
    return f"{len(sweep.states)} runs: {', '.join(f'{count} {state}' for state, count in counts.most_common())}."


def _metrics(sweep: SweepView) -> dict[str, str]:
    """Column of the metrics -> what it is called, of those that are shown."""
    observers = observers_in(point.series for point in sweep.points)
    epsilons = {f"epsilon_{observer}": f"epsilon of {observer}" for observer in observers}
    return _LEARNED | epsilons | _COSTS


def _tables(sweep: SweepView) -> dict[str, Table]:
    titles = _metrics(sweep)
    shown = [name for name in titles if any(last_of(point, name) for point in sweep.points)]
    heads = ["point", "runs", *(titles[name] for name in shown)]
    rows = [[point.series.name, point.runs, *(_told(point, name) for name in shown)] for point in sweep.points]
    tables = (
        {
            "Results at each point of the grid: means over seeds, with 95 % intervals of accuracy and loss": Table(
                heads, rows
            )
        }
        if rows
        else {}
    )
    if sweep.errors:
        tables["Runs that failed"] = Table(("run", "with"), [[name, text] for name, text in sweep.errors.items()])
    return tables


def last_of(point: GridPoint, metric: str) -> tuple[float, float, float] | None:
    """Mean, low and high of the last interval in which the metric is known."""
    columns = point.series.columns
    means = columns.get(metric, [])
    at = next((place for place in reversed(range(len(means))) if means[place] is not None), None)
    if at is None:
        return None
    low, high = (columns.get(f"{metric}_{end}", means)[at] for end in ("low", "high"))
    return means[at], low, high


def _told(point: GridPoint, metric: str) -> str | float | None:
    found = last_of(point, metric)
    if found is None or metric not in _WITH_INTERVAL:
        return found and found[0]
    mean, low, high = map(number, found)
    return mean if low == high else f"{mean} ({low} to {high})"


def _explorer(sweep: SweepView) -> Explorer:
    short = shortened_keys(sweep.keys)
    values = [_in_order(point.values[key] for point in sweep.points) for key in sweep.keys]
    points = [
        [found.index(word(point.values[key])) for key, found in zip(sweep.keys, values, strict=True)]
        for point in sweep.points
    ]
    titles = _metrics(sweep)
    metrics = {name: (title, [last_of(point, name) for point in sweep.points]) for name, title in titles.items()}
    known = {name: found for name, found in metrics.items() if any(found[1])}
    caption = (
        "Final results along one or two of the swept keys: means over seeds, with the 95 % interval as a band or when "
        "you point at a value. Choose the quantity and the keys above; the other keys keep the chosen value."
    )
    return Explorer("explorer", "Along the swept keys", caption, dict(zip(short, values, strict=True)), points, known)


def _in_order(values: Any) -> list[str]:
    """Distinct values as words: numbers by size, else as they come."""
    distinct = list({word(value): value for value in values}.items())
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for _, value in distinct):
        distinct.sort(key=lambda item: item[1])
    return [name for name, _ in distinct]


def _privacy(sweep: SweepView, every: Sequence[Series]) -> ReportSection:
    rows = [row for point in sweep.points if (row := _verdict(point))]
    heads = ("point", "claimed", "largest accounted", "verdict")
    tables = (
        {"The verdict at each point, over all observers and seeds": without_claims(heads, rows, 1)} if rows else None
    )
    lead = f"{lead_of(rows, 1)} The worst verdict over runs and observers is shown." if rows else ""
    return ReportSection("privacy", "Privacy", lead, epsilon_figures(every, _BANDS), tables)


def _verdict(point: GridPoint) -> list[Any] | None:
    accounts = [summary["privacy"] for summary in point.summaries if (summary.get("privacy") or {}).get("worst")]
    found = [numbers for account in accounts for numbers in account["worst"].values()]
    if not found:
        return None
    claims = [account["claimed"] for account in accounts if account.get("target") is None]
    claimed = None if None in claims else max(claims, default=None)
    by = {account.get("target_by") for account in accounts}
    accounted = by.pop() if len(by) == 1 else "pld"
    key = accounted or "pld"
    largest = max((each[key] for each in found if each.get(key) is not None), default=None)
    judged = {each.get("verdict") for each in found} - {UNTARGETED}
    verdict = UNTARGETED if not judged else "met" if judged == {"met"} else "open"
    return [point.series.name, claimed, largest, verdict]
