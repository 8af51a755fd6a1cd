"""Carry out a study: find out what is left of it, make those runs, write the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from h2fdp.errors import Problem, UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import locked
from h2fdp.run.identity import package_digest
from h2fdp.runtime.section import usable_cpus
from h2fdp.sweeps.directory import (
    SweepDirectory,
    SweepEntry,
    read_entries,
    remove_run,
    write_entries,
    write_tables,
)
from h2fdp.sweeps.grid import SWEEP
from h2fdp.sweeps.pool import Pool, WorkOptions
from h2fdp.sweeps.study import PlannedRun, SharedInputs, Study
from h2fdp.sweeps.task import Outcome, Task

_MOST_PROBLEMS = 20


def conduct(study: Study, path: Path, shared: SharedInputs, options: WorkOptions) -> dict[str, Outcome]:
    """Make the runs of a study that are not finished, in the directory of a sweep, and write the tables.

    Args:
        shared: what checking the study has made.

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
        changed = _changed_runs(study, directory, before)
        if changed and not options.overwrite:
            raise UserError(_told(changed))
        names = [planned.point.name for planned in study.runs]
        stand = set(directory.finished(names)) - changed.keys()
        _check_data((each for each in study.runs if each.point.name not in stand), study, shared, options.data_root)
        for name in changed:
            remove_run(directory.run(name))
        (directory.path / "runs").mkdir(exist_ok=True)
        write_text(directory.study, study.text())
        _write_states(study, directory, before, {})
        tasks = _tasks(study, directory, stand)
        options.watcher.begin(len(names), len(names) - len(tasks), sum(task.intervals - task.done for task in tasks))
        outcomes: dict[str, Outcome] = {}
        own_ray = all(each.address is None for each in study.runs)
        try:
            for on_ray in (False, True):  # side by side; those on Ray have the machine for themselves
                if these := [task for task in tasks if task.on_ray is on_ray]:
                    jobs = 1 if on_ray else min(options.jobs or usable_cpus(), len(these))
                    with Pool(study.document, shared, options, jobs, own_ray=on_ray and own_ray) as pool:
                        outcomes |= pool.carry_out(these, options.watcher)
        finally:
            values = {planned.point.name: planned.point.values for planned in study.runs}
            write_tables(directory, study.keys, {name: values[name] for name in directory.finished(names)})
            _write_states(study, directory, before, _note_failures(directory, outcomes))
        return outcomes


def _changed_runs(study: Study, directory: SweepDirectory, entries: Mapping[str, SweepEntry]) -> dict[str, Problem]:
    """The points whose run is there and would be another one now -> what changed."""
    code, found, sections = package_digest(), dict[str, Problem](), _changed_sections(study, directory)
    for planned in study.runs:
        name = planned.point.name
        entry = entries.get(name)
        if not directory.is_begun(name) or (entry and (entry.digest, entry.code) == (planned.digest, code)):
            continue
        if entry is None or entry.digest == planned.digest:
            text, key = "the code of h2fdp has changed since the run was made", "code"
        else:
            text, key = "its configuration, its topology or its own code has changed since the run was made", sections
        found[name] = Problem(text, str(directory.run(name)), key)
    return found


def _changed_sections(study: Study, directory: SweepDirectory) -> str:
    """The sections of the study's file that differ from those of its last start, as far as the file says."""
    if not directory.study.is_file():
        return ""
    before, now = yaml.safe_load(directory.study.read_text()), yaml.safe_load(study.text())
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


def _check_data(left: Iterable[PlannedRun], study: Study, shared: SharedInputs, root: Path | None) -> None:
    """Refuse a study if the data of none of the runs that are left can be read: reported once, and not by every run."""
    problems: list[Problem] = []
    tried = set()
    for planned in left:
        request = shared.request(*shared.experiment(study.document, planned.settings), root)
        if request is None:
            return
        if request.origin not in tried:
            tried.add(request.origin)
            try:
                shared.read(request)
            except UserError as error:
                problems += error.problems
            else:
                return
    if problems:
        raise UserError(problems)


def _write_states(
    study: Study, directory: SweepDirectory, before: Mapping[str, SweepEntry], reasons: Mapping[str, str]
) -> None:
    """Write what all runs that are there or to come are made of, those of earlier grids as long as they have a run."""
    code, entries = package_digest(), {name: each for name, each in before.items() if directory.run(name).is_dir()}
    for planned in study.runs:
        name, point = planned.point.name, planned.point
        state = "failed" if name in reasons else directory.state_of(name)
        entries[name] = SweepEntry(point.values, planned.digest, code, state, reasons.get(name, ""))
    write_entries(directory, study.name, study.keys, entries)


def _tasks(study: Study, directory: SweepDirectory, finished: Collection[str]) -> list[Task]:
    """What is left to do; runs that share their data come one after the other."""
    firsts: dict[str, int] = {}
    for number, planned in enumerate(study.runs):
        firsts.setdefault(planned.alike, number)
    left = [planned for planned in study.runs if planned.point.name not in finished]
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
        failure = directory.failure(name)
        if outcome.error:
            failure.parent.mkdir(exist_ok=True)
            write_text(failure, outcome.error.rstrip() + "\n")
        else:
            failure.unlink(missing_ok=True)
    return {name: outcome.reason for name, outcome in outcomes.items() if outcome.error}
