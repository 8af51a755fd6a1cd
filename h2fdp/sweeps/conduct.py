"""Carry out a sweep: find out what is left of it, make those runs, write the tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from h2fdp.config.parsing import values_of
from h2fdp.costs.kinds import COSTS
from h2fdp.errors import Problem, UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import RunDirectory, locked
from h2fdp.records.tables import METRICS_SCHEMA, read_table, write_table
from h2fdp.reports.sweep_numbers import means_with_intervals
from h2fdp.run.identity import package_digest
from h2fdp.runtime.placement import usable_cpus
from h2fdp.sweeps.grid import SWEEP, word
from h2fdp.sweeps.plan import SharedInputs, SweepPlan
from h2fdp.sweeps.pool import Pool, WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory, SweepEntry, Task, read_entries, remove_run, write_entries
from h2fdp.wording import SCORED

_MOST_PROBLEMS = 20


def conduct(plan: SweepPlan, path: Path, shared: SharedInputs, options: WorkOptions) -> dict[str, Outcome]:
    """Make the runs of a sweep that are not finished, in its directory, and write the tables.

    Args:
        shared: what checking it has made.

    Returns:
        the outcomes of the runs that were started or continued, by point.

    Raises:
        UserError: the directory holds something else, or is in use; runs are there that would differ now; no data
            can be read, and nothing is touched then.
    """
    directory = SweepDirectory(path.absolute())
    read_entries(directory)  # raises before anything is written
    with locked(directory.path, str(path), "sweep"):
        before = read_entries(directory)
        changed = _changed_runs(plan, directory, before)
        if changed and not options.overwrite:
            raise UserError(_told(changed))
        names = [planned.point.name for planned in plan.runs]
        stand = set(directory.finished(names)) - changed.keys()
        left = (each for each in plan.runs if each.point.name not in stand)
        shared.check_data(shared.experiment(plan.document, each.settings) for each in left)
        for name in changed:
            remove_run(directory.run(name))
        (directory.path / "runs").mkdir(exist_ok=True)
        write_text(directory.study, plan.text())
        _write_states(plan, directory, before, {})
        tasks = _tasks(plan, directory, stand)
        options.watcher.begin(len(names), len(names) - len(tasks), sum(task.intervals - task.done for task in tasks))
        outcomes: dict[str, Outcome] = {}
        own_ray = all(each.address is None for each in plan.runs)
        try:
            for on_ray in (False, True):  # side by side; those on Ray have the machine for themselves
                if these := [task for task in tasks if task.on_ray is on_ray]:
                    jobs = 1 if on_ray else min(options.jobs or usable_cpus(), len(these))
                    pool = Pool(plan.document, shared, options, jobs, own_ray=on_ray and own_ray)
                    outcomes |= pool.carry_out(these, options.watcher)
        finally:
            values = {planned.point.name: planned.point.values for planned in plan.runs}
            write_tables(directory, plan.keys, {name: values[name] for name in directory.finished(names)})
            _write_states(plan, directory, before, _note_failures(directory, outcomes))
        return outcomes


def _changed_runs(plan: SweepPlan, directory: SweepDirectory, entries: Mapping[str, SweepEntry]) -> dict[str, Problem]:
    """The points whose run is there and would be another one now -> what changed."""
    code, problems, sections = package_digest(), dict[str, Problem](), _changed_sections(plan, directory)
    for planned in plan.runs:
        name = planned.point.name
        entry = entries.get(name)
        if not directory.is_begun(name) or (entry and (entry.digest, entry.code) == (planned.digest, code)):
            continue
        if entry is None or entry.digest == planned.digest:
            text, key = "the code of h2fdp has changed since the run was made", "code"
        else:
            text, key = "its configuration, its topology or its own code has changed since the run was made", sections
        problems[name] = Problem(text, str(directory.run(name)), key)
    return problems


def _changed_sections(plan: SweepPlan, directory: SweepDirectory) -> str:
    """The sections of the sweep's file that differ from those of its last start, as far as the file says."""
    if not directory.study.is_file():
        return ""
    before, now = values_of(directory.study.read_text()), values_of(plan.text())
    return ", ".join(key for key in {**before, **now} if key != SWEEP and before.get(key) != now.get(key))


def _told(changed: Mapping[str, Problem]) -> list[Problem]:
    """A line for each kind of change, with the first run that has it."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in changed.values():
        alike.setdefault((problem.key, problem.text), []).append(problem)
    lines = [
        replace(first, text=first.text + (f" (and {len(more)} more)" if more else ""))
        for first, *more in list(alike.values())[:_MOST_PROBLEMS]
    ]
    return [*lines, Problem("add --overwrite (overwrite=True) to repeat these runs, or choose another --out")]


def _write_states(
    plan: SweepPlan, directory: SweepDirectory, before: Mapping[str, SweepEntry], reasons: Mapping[str, str]
) -> None:
    """Write what all runs that are there or to come are made of, those of earlier grids as long as they have a run."""
    code, entries = package_digest(), {name: each for name, each in before.items() if directory.run(name).is_dir()}
    for planned in plan.runs:
        name, point = planned.point.name, planned.point
        state = "failed" if name in reasons else directory.state_of(name)
        entries[name] = SweepEntry(point.values, planned.digest, code, state, reasons.get(name, ""))
    write_entries(directory, plan.name, plan.keys, entries)


def _tasks(plan: SweepPlan, directory: SweepDirectory, finished: Collection[str]) -> list[Task]:
    """The tasks that are left; runs that share their data come one after the other."""
    firsts: dict[str, int] = {}
    for number, planned in enumerate(plan.runs):
        firsts.setdefault(planned.alike, number)
    left = [planned for planned in plan.runs if planned.point.name not in finished]
    return [
        Task(
            planned.point.name,
            planned.settings,
            planned.digest,
            directory.run(planned.point.name),
            planned.intervals,
            directory.intervals_of(planned.point.name),
            planned.on_ray,
        )
        for planned in sorted(left, key=lambda planned: firsts[planned.alike])
    ]


def _note_failures(directory: SweepDirectory, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Write down what runs failed with for good; the answer has it in a line."""
    for name, outcome in outcomes.items():
        if outcome.error:
            directory.note_failure(name, outcome.error)
        else:
            directory.failure(name).unlink(missing_ok=True)
    return {name: outcome.reason for name, outcome in outcomes.items() if outcome.error}


RUN, SEED, INTERVAL, COUNT = "run", "seed", "interval", "n"


def write_tables(directory: SweepDirectory, keys: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> None:
    """Write `sweep.parquet` and `summary.parquet` of the finished runs.

    Args:
        keys: that are swept.
        values: finished run -> swept key -> value, in the order of the grid.
    """
    table = _table(directory, keys, values)
    write_table(directory.table, table)
    means = summary_of(table.to_pandas(), keys)
    write_table(directory.summary, pa.Table.from_pandas(means, preserve_index=False))


def _table(directory: SweepDirectory, keys: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    parts = []
    for name in values:
        path = RunDirectory(directory.run(name)).metrics
        try:
            parts.append(read_table(path))
        except UserError as error:
            text = f"{error.problems[0].text}, although its run is done; delete the run's folder and repeat the command"
            raise UserError(text, str(path)) from None
    metrics = pa.concat_tables(parts or [METRICS_SCHEMA.empty_table()], promote_options="default")
    run_of_row = pa.array(np.repeat(np.arange(len(parts)), [part.num_rows for part in parts]))
    columns = {RUN: pa.array(list(values), pa.string())}
    columns |= {key: column_of([point[key] for point in values.values()]) for key in keys}
    repeated = [column.take(run_of_row) for column in columns.values()]
    return pa.table([*repeated, *metrics.columns], names=[*columns, *metrics.column_names])


def column_of(values: Sequence[Any]) -> pa.Array:
    """Swept values as a column: numbers or truth values where all are, else words as YAML has them.

    >>> [str(column_of(each).type) for each in ([1, 2], [1, 0.5], [True, None], ["hfl", "h2fdp"], [1, "auto"])]
    ['int64', 'double', 'bool', 'string', 'string']
    """
    kinds = {type(value) for value in values if value is not None}
    for allowed, kind in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= allowed:
            return pa.array(values, kind)
    words = [value if value is None or isinstance(value, str) else word(value) for value in values]
    return pa.array(words, pa.string())


_STAY = (*SCORED, "epsilon", "device_accuracy", "device_rmse", *COSTS)


def summary_of(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Means over seeds, for each combination of the other swept values and each interval.

    A run that is over stays where it ended, with its accuracy, loss, epsilon and costs, while others go on. What
    was set in each interval, as step sizes, has means up to the end of the first run only.

    Columns: those values, `interval`, `n` (runs that get there) and for each column of the metrics its `_mean` over the
    runs that know it, `_low` and `_high`: Student's 95 % interval, null with fewer than two runs.
    """
    others = [key for key in keys if key != SEED]
    metrics = [name for name in table.columns if name not in (RUN, INTERVAL, *keys)]
    columns = [*others, INTERVAL, COUNT, *(f"{name}_{what}" for name in metrics for what in ("mean", "low", "high"))]
    if table.empty:
        return pd.DataFrame({name: pd.Series(dtype="float64") for name in columns})
    groups = [group for _, group in table.groupby(others, sort=False, dropna=False)] if others else [table]
    parts = [_summary_of_group(group, others, metrics) for group in groups]
    return pd.concat(parts, ignore_index=True)[columns]


def _summary_of_group(group: pd.DataFrame, others: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    runs, run_of = np.unique(group[RUN].to_numpy(dtype=str), return_inverse=True)
    intervals, interval_of = np.unique(group[INTERVAL].to_numpy(), return_inverse=True)
    values = np.full((len(runs), len(intervals), len(metrics)), np.nan)
    values[run_of, interval_of] = group[list(metrics)].to_numpy(dtype=np.float64, na_value=np.nan)
    stay = [place for place, name in enumerate(metrics) if name.startswith(_STAY) or name.endswith(_STAY)]
    ends = [int(interval_of[run_of == run].max()) for run in range(len(runs))]
    for run, last in enumerate(ends):
        known = pd.DataFrame(values[run, : last + 1]).ffill().to_numpy()[-1]
        values[run, last:, stay] = known[stay, None]
    values[:, min(ends) + 1 :, np.setdiff1d(np.arange(len(metrics)), stay)] = np.nan  # else means jump where a run ends
    means = means_with_intervals(values.reshape(len(runs), -1))
    summary: dict[str, Any] = {key: [group[key].iloc[0]] * len(intervals) for key in others}
    summary |= {INTERVAL: intervals, COUNT: np.bincount(interval_of)}
    for what in ("mean", "low", "high"):
        columns = getattr(means, what).reshape(len(intervals), len(metrics))
        summary |= {f"{name}_{what}": columns[:, place] for place, name in enumerate(metrics)}
    return pd.DataFrame(summary)


def last_intervals(summary: pd.DataFrame) -> pd.DataFrame:
    """The last interval of each combination of a summary."""
    others = list(summary.columns[: summary.columns.get_loc(INTERVAL)])
    if summary.empty or not others:
        return summary.tail(1)
    return summary.groupby(others, sort=False, dropna=False).tail(1)
