"""A sweep's directory as a report shows it: each point of the grid is a series of means over its runs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2fdp.costs.kinds import COSTS
from h2fdp.errors import UserError
from h2fdp.privacy.places import UNTARGETED
from h2fdp.records.atomic import read_checked_json
from h2fdp.records.directory import read_summary
from h2fdp.reports.decisions import schedule
from h2fdp.reports.figures import Column, Explorer, ReportSection, Series, Table, number, places
from h2fdp.reports.results import epsilon_figures, known_columns, lead_of, observers_in, training
from h2fdp.reports.run_view import MOST_POINTS, WITHHELD, largest_epsilon, table_of
from h2fdp.wording import SCORED, SCORES, judged_by

STATE, TABLE, STUDY = "sweep.json", "summary.parquet", "study.yaml"
SEED = "seed"
_ENDS = ("low", "high")


@dataclass(frozen=True)
class GridPoint:
    """One combination of swept values, over all seeds.

    Attributes:
        values: swept key, without the seed -> value.
        runs: the most runs that an interval's means are over.
        series: the means, and `_low` and `_high` of each column: the ends of the interval over seeds.
        summaries: of its finished runs.
    """

    values: Mapping[str, Any]
    runs: int
    series: Series
    summaries: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class SweepView:
    """The parts of a sweep that a report reads.

    Attributes:
        keys: swept, without the seed.
        states: run -> how it stands; errors: run -> what it failed with.
        points: those with a finished run.
    """

    name: str
    keys: Sequence[str]
    states: Mapping[str, str]
    errors: Mapping[str, str]
    points: Sequence[GridPoint]
    study: str

    @classmethod
    def read(cls, path: Path) -> SweepView:
        """Read a sweep's directory.

        Raises:
            UserError: a file of it is damaged.
        """
        try:
            state = read_checked_json(path / STATE) or {}
            entries: dict[str, Any] = dict(state["points"])
            keys = [key for key in state["keys"] if key != SEED]
            values = {run: {key: entry["values"].get(key) for key in keys} for run, entry in entries.items()}
            states = {run: str(entry["state"]) for run, entry in entries.items()}
            errors = {run: str(entry["error"]) for run, entry in entries.items() if entry.get("error")}
            name = str(state["name"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"not a sweep directory ({error})", str(path / STATE)) from None
        study = path / STUDY
        summaries = [(own, read_summary(path / "runs" / run) or {}) for run, own in values.items()]
        points = _points(table_of(path / TABLE), keys, summaries)
        return cls(name, keys, states, errors, points, study.read_text() if study.is_file() else "")


def is_sweep(path: Path) -> bool:
    """Whether this is a sweep's directory."""
    return (path / STATE).is_file()


def _points(
    table: Mapping[str, Column], keys: Sequence[str], runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> list[GridPoint]:
    rows: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(table.get("interval", []))):
        rows.setdefault(tuple(word(table[key][row]) for key in keys), []).append(row)
    short = shortened_keys(keys)
    points = []
    for words, own in rows.items():
        values = {key: table[key][own[0]] for key in keys}
        count = max(table["n"][row] for row in own)
        name = ", ".join(f"{key}={each}" for key, each in zip(short, words, strict=True)) or "mean over seeds"
        kept = [own[place] for place in places(len(own), MOST_POINTS)]
        summaries = [summary for each, summary in runs if summary and tuple(word(each[key]) for key in keys) == words]
        columns = _columns(table, kept)
        targets = {(summary.get("privacy") or {}).get("target") for summary in summaries}
        if None not in targets and "epsilon_claimed" in columns:  # then nothing is claimed
            columns = {column: each for column, each in columns.items() if not column.startswith("epsilon_claimed")}
            columns["epsilon_target"] = [targets.pop() if len(targets) == 1 else None] * len(kept)
        columns["epsilon_most"] = largest_epsilon(columns)
        points.append(GridPoint(values, count, Series(name, columns), summaries))
    return points


def _columns(table: Mapping[str, Column], rows: Sequence[int]) -> dict[str, Column]:
    columns: dict[str, Column] = {"interval": [table["interval"][row] for row in rows]}
    for name in table:
        if not name.endswith("_mean"):
            continue
        metric = name.removesuffix("_mean")
        columns[metric] = means = [_known(table[name][row]) for row in rows]
        for end in _ENDS:
            values = [_known(table[f"{metric}_{end}"][row]) for row in rows]
            if any(value is not None for value in values):  # a single run has no interval
                columns[f"{metric}_{end}"] = [
                    mean if value is None else value for mean, value in zip(means, values, strict=True)
                ]
    return columns


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def shortened_keys(keys: Sequence[str]) -> list[str]:
    """The last part of each dotted key, where that is clear.

    >>> shortened_keys(["topology.trust.probability", "privacy.epsilon"]), shortened_keys(["a.x", "b.x"])
    (['probability', 'epsilon'], ['a.x', 'b.x'])
    """
    last = [key.rsplit(".", 1)[-1] for key in keys]
    return [each if last.count(each) == 1 else key for key, each in zip(keys, last, strict=True)]


def word(value: Any) -> str:
    """A swept value as a word; 1 and 1.0 are the same.

    >>> word(1.0), word(0.25), word(None), word("hfl"), word(True), word([1, 2])
    ('1', '0.25', 'null', 'hfl', 'true', '[1, 2]')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


_CHOICES = {"parameters": "model", "intervals": "training.intervals"}  # of a summary, and the key that states it


def choices_of(keys: Sequence[str], points: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """Numbers in which runs differ although no swept key states them; of runs that did not end early.

    Args:
        keys: that are swept.
        points: of each the summaries of its runs.

    Returns:
        Name -> the number at each point; several, where its runs differ.
    """
    found = {}
    for name, stated in _CHOICES.items():
        if any(f"{key}.".startswith(f"{stated}.") or f"{stated}.".startswith(f"{key}.") for key in keys):
            continue
        ended = [[each for each in runs if name == "parameters" or each.get("state") == "done"] for runs in points]
        values = [sorted({int(each[name]) for each in runs if each.get(name)}) for runs in ended]
        if len({each for own in values for each in own}) > 1:
            found[name] = [", ".join(f"{each:,}" for each in own) for own in values]
    return found


def footnote_of(choices: Collection[str]) -> str:
    """A sentence where points differ in more than their keys; else empty."""
    text = f"runs also differ in {' and '.join(choices)}, which were chosen for each run, and so in their joules"
    return f"{text}; to compare equal messages state model, training.intervals or both" if choices else ""


def encoders_of(summaries: Iterable[Mapping[str, Any]]) -> str:
    """The encoders that made features of runs, and what they were trained on, in words; empty where none did."""
    names = dict.fromkeys(each["encoder"] for each in summaries if each.get("encoder"))
    return f"features by {'; '.join(names)}" if names else ""


_BANDS = " Means over seeds, with bands for their 95 % intervals (Student's t)."
_LEARNED = {name: f"final {score.name}" for name, score in SCORES.items()}
_LEARNED |= {"loss": "final test loss", "epsilon_claimed": "epsilon claimed"}


def sweep_sections(sweep: SweepView, *, withheld: bool = False) -> tuple[list[ReportSection], list[Series]]:
    """All parts of the report of a sweep, and the series that its curves show.

    Args:
        withheld: whether numbers that no epsilon covers were left out, which the page says.
    """
    every = [point.series for point in sweep.points]
    explorer = [_explorer(sweep)] if sweep.keys and sweep.points else []
    folded: dict[str, Table | str] = {"study.yaml": sweep.study} if sweep.study else {}
    choices = choices_of(sweep.keys, [point.summaries for point in sweep.points])
    tables, differing = _tables(sweep, choices), footnote_of(choices)
    differing = differing and f"{differing[0].upper()}{differing[1:]}."
    notes = f"{differing} {WITHHELD * withheld}".strip()
    return [
        ReportSection("results", "Results", _standing(sweep), tables=tables, footnote=notes),
        ReportSection("grid", "The grid", "", explorer, footnote=differing),
        training(every, _BANDS),
        _privacy(sweep, every),
        schedule(every, f"{_BANDS} Where seeds differ in length, curves end with the shortest run."),
        ReportSection("configuration", "Configuration", "", folded=folded),
    ], every


def _standing(sweep: SweepView) -> str:
    """The counts of runs by state; the lowest and highest score, with their places; the lowest and highest cost."""
    counts = Counter(sweep.states.values())
    said = f"{len(sweep.states)} runs: {', '.join(f'{count} {state}' for state, count in counts.most_common())}."
    score = judged_by({name: each for point in sweep.points for name in SCORES if (each := last_of(point, name))})
    names = (score.column, "energy_j", "clock_s")
    found = [
        [(last[0], point.series.name) for point in sweep.points if (last := last_of(point, name))] for name in names
    ]
    if len(sweep.points) > 1 and all(found):
        (low, where), (high, there) = min(found[0]), max(found[0])
        costs = [dict.fromkeys((number(min(each)[0]), number(max(each)[0]))) for each in found[1:]]
        least, most = score.said(low), score.said(high).removeprefix(score.name)
        said += f" {least[0].upper()}{least[1:]} ({where}) to{most} ({there}); "
        said += f"{' to '.join(costs[0])} J, {' to '.join(costs[1])} s on the simulated clock."
    return said


def _metrics(sweep: SweepView) -> dict[str, str]:
    """Column of the metrics -> what it is called, of those that are shown."""
    observers = observers_in(point.series for point in sweep.points)
    epsilons = {f"epsilon_{observer}": f"epsilon of {observer}" for observer in observers}
    return _LEARNED | epsilons | {column: each.title for column, each in COSTS.items()}


def _tables(sweep: SweepView, choices: Mapping[str, Sequence[str]]) -> dict[str, Table]:
    titles = _metrics(sweep)
    shown = [name for name in titles if any(last_of(point, name) for point in sweep.points)]
    heads = ["point", *(f"{name} chosen" for name in choices), *(titles[name] for name in shown), "runs"]
    rows = [
        [point.series.name, *chosen, *(_told(point, name) for name in shown), point.runs]
        for point, *chosen in zip(sweep.points, *choices.values(), strict=True)
    ]
    title = "Results at each point of the grid: means over seeds, with 95 % intervals of scores and loss"
    tables = {title: Table(heads, rows)} if rows else {}
    if sweep.errors:
        tables["Runs that failed"] = Table(("run", "with"), [[name, text] for name, text in sweep.errors.items()])
    return tables


def last_of(point: GridPoint, metric: str) -> tuple[float, float, float] | None:
    """Mean, low and high of the last interval that has the metric."""
    columns = point.series.columns
    means = columns.get(metric, [])
    at = next((place for place in reversed(range(len(means))) if means[place] is not None), None)
    if at is None:
        return None
    low, high = (columns.get(f"{metric}_{end}", means)[at] for end in ("low", "high"))
    return means[at], low, high


def _bounded(point: GridPoint, metric: str) -> tuple[float, float, float] | None:
    """Mean, low and high as of `last_of`, with ends where scores can be."""
    last, score = last_of(point, metric), SCORES.get(metric)
    if last is None or score is None or not score.least <= last[0] <= score.most:
        return last
    return last[0], max(score.least, last[1]), min(score.most, last[2])


def _told(point: GridPoint, metric: str) -> str | float | None:
    last = last_of(point, metric)
    if last is None or metric not in SCORED:  # all have intervals in the explorer
        return last and last[0]
    mean, _, high = last
    if not high > mean:  # one run, or all alike
        return mean
    decimals = max(0, 1 - math.floor(math.log10(high - mean)))
    return f"{mean:.{decimals}f} ± {high - mean:.{decimals}f}"


def _explorer(sweep: SweepView) -> Explorer:
    short = shortened_keys(sweep.keys)
    values = [_in_order(point.values[key] for point in sweep.points) for key in sweep.keys]
    points = [
        [found.index(word(point.values[key])) for key, found in zip(sweep.keys, values, strict=True)]
        for point in sweep.points
    ]
    titles = _metrics(sweep)
    metrics = {name: (title, [_bounded(point, name) for point in sweep.points]) for name, title in titles.items()}
    known = {name: found for name, found in metrics.items() if any(found[1])}
    caption = (
        "Final results along one or two of the swept keys: means over seeds, with their 95 % intervals as bars, or "
        "where you point at a colour. Choose the quantity and the keys above; the other keys keep the chosen value."
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
    tables = {"The verdict at each point, over all observers and seeds": known_columns(heads, rows)} if rows else {}
    lead = f"{lead_of(rows, 1)} The worst verdict over runs and observers is shown." if rows else ""
    if encoders := encoders_of(each for point in sweep.points for each in point.summaries):
        lead += f" F{encoders[1:]}; no account covers what they learned there."
    return ReportSection("privacy", "Privacy", lead, epsilon_figures(every, " Means over seeds."), tables)


def _verdict(point: GridPoint) -> list[Any] | None:
    accounts = [summary["privacy"] for summary in point.summaries if (summary.get("privacy") or {}).get("worst")]
    worst = [numbers for account in accounts for numbers in account["worst"].values()]
    if not worst:
        return None
    claims = [account["claimed"] for account in accounts if account.get("target") is None]
    claimed = None if None in claims else max(claims, default=None)
    by = {account.get("target_by") for account in accounts}
    accounted = by.pop() if len(by) == 1 else "pld"
    key = accounted or "pld"
    largest = max((each[key] for each in worst if each.get(key) is not None), default=None)
    judged = {each.get("verdict") for each in worst} - {UNTARGETED}
    verdict = UNTARGETED if not judged else "met" if judged == {"met"} else "open"
    return [point.series.name, claimed, largest, verdict]
