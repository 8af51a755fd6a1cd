"""Carry out a study: find out what is left of it, make those runs, write the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from h2fdp.config.check import quote
from h2fdp.errors import Problem, UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import locked
from h2fdp.run.identity import counted, own_parts_of, package_digest
from h2fdp.runtime.section import usable_cpus
from h2fdp.sweeps.directory import SweepDirectory, SweepEntry, SweepStates, read_entries, remove_run, write_tables
from h2fdp.sweeps.pool import Pool, SilentWatcher, SweepWatcher, WorkOptions
from h2fdp.sweeps.study import PlannedRun, SharedInputs, Study, configuration_of
from h2fdp.sweeps.task import Outcome, Task
from h2fdp.topology.yaml_text import yaml_text

_ABSENT = object()
_MOST_KEYS = 5
_MOST_PROBLEMS = 20


def changed_runs(
    study: Study, directory: SweepDirectory, entries: Mapping[str, SweepEntry], code: str, shared: SharedInputs
) -> dict[str, list[Problem]]:
    """The points whose run is there and would be another one now -> what changed."""
    found: dict[str, list[Problem]] = {}
    for planned in study.runs:
        name = planned.point.name
        entry = entries.get(name)
        if not directory.is_begun(name) or (entry and (entry.digest, entry.code) == (planned.digest, code)):
            continue
        same = entry is not None and entry.digest == planned.digest
        problems = [] if same else _differences(study, planned, directory, shared)
        parts = own_parts_of(*shared.experiment(study.document, planned.settings))
        if entry and not same and not problems and parts:
            text = "the run was made by other code of your own than is there now"
            problems.append(Problem(text, str(directory.run(name)), "code"))
        if entry is None or entry.code != code:
            text = "the code of h2fdp has changed since the run was made"
            problems.append(Problem(text, str(directory.run(name)), "code"))
        if problems:
            found[name] = problems
    return found


def refuse(changed: Mapping[str, Sequence[Problem]]) -> None:
    """Raise for runs that changed: which keys, what they were and what they are.

    Raises:
        UserError: one line for each key, with the first run that has it.
    """
    by_text: dict[tuple[str, str], list[Problem]] = {}
    for problems in changed.values():
        for problem in problems:
            by_text.setdefault((problem.key, problem.text), []).append(problem)
    lines = []
    for alike in list(by_text.values())[:_MOST_PROBLEMS]:
        first, more = alike[0], len(alike) - 1
        others = f", and of {more} more runs" if more > 1 else ", and of one more run" if more else ""
        lines.append(replace(first, text=first.text + others))
    runs = "1 run is" if len(changed) == 1 else f"{len(changed)} runs are"
    repeat = "add --overwrite (overwrite=True) to repeat these runs"
    hint = f"{runs} changed since it was made; {repeat}, or choose another --out"
    raise UserError([*lines, Problem(hint)])


def _differences(study: Study, planned: PlannedRun, directory: SweepDirectory, shared: SharedInputs) -> list[Problem]:
    """Keys that differ between a run's own files and what it would run now."""
    config, topology = shared.experiment(study.document, planned.settings)
    run = directory.run(planned.point.name)
    before = yaml.safe_load((run / "config.yaml").read_text())
    then, now = _flat(counted(before)), _flat(configuration_of(config))
    then.pop("topology", None)
    opened = [f"training.{key}" for key in config.training.left_open]  # chosen by the run itself, as a model is
    if config.model.name == "auto":
        opened.append("model")
    then, now = (
        {key: each for key, each in values.items() if not any(f"{key}.".startswith(f"{part}.") for part in opened)}
        for values in (then, now)
    )
    now.pop("training.extends", None)
    then["runtime.engine"], now["runtime.engine"] = before["runtime"]["engine"], config.runtime.engine
    if config.runtime.engine in ("auto", "fastest"):  # stands for one that the run chose by itself
        now["runtime.engine"] = then["runtime.engine"]
    found = _told(then, now, str(run))
    text = (run / "topology.yaml").read_text()
    if text != yaml_text(topology):
        before, after = (_flat({"topology": yaml.safe_load(each)}) for each in (text, yaml_text(topology)))
        found += _told(before, after, str(run))
    return found


def _told(then: Mapping[str, Any], now: Mapping[str, Any], where: str) -> list[Problem]:
    keys = [key for key in {**then, **now} if then.get(key, _ABSENT) != now.get(key, _ABSENT)]
    problems = [
        Problem(f"was {_word(then.get(key, _ABSENT))}, is {_word(now.get(key, _ABSENT))} now", where, key)
        for key in keys[:_MOST_KEYS]
    ]
    if len(keys) > _MOST_KEYS:
        problems.append(Problem(f"{len(keys) - _MOST_KEYS} more values differ", where, keys[0].partition(".")[0]))
    return problems


def _word(value: Any) -> str:
    return "not there" if value is _ABSENT else quote(value)


def _flat(values: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> value, down to what is neither a mapping nor a list."""
    if isinstance(values, Mapping) and values:
        return {k: v for name, part in values.items() for k, v in _flat(part, f"{key}.{name}" if key else name).items()}
    if isinstance(values, list) and values:
        return {k: v for number, part in enumerate(values) for k, v in _flat(part, f"{key}[{number}]").items()}
    return {key: values}


def default_directory(study: Study) -> Path:
    """The default directory of a sweep."""
    return Path("sweeps") / study.name


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
        return _conducted(study, directory, shared, options)


def _conducted(
    study: Study, directory: SweepDirectory, shared: SharedInputs, options: WorkOptions
) -> dict[str, Outcome]:
    """`conduct` in a directory that nobody else writes to."""
    before = read_entries(directory)
    changed = changed_runs(study, directory, before, package_digest(), shared)
    if changed and not options.overwrite:
        refuse(changed)
    names = [planned.point.name for planned in study.runs]
    stand = set(directory.finished(names)) - set(changed)
    _check_data(
        (planned for planned in study.runs if planned.point.name not in stand), study, shared, options.data_root
    )
    states = _begun(study, directory, before, changed)
    tasks = _tasks(study, directory, set(directory.finished(names)))
    options.watcher.begin(len(names), len(names) - len(tasks), sum(task.intervals - task.done for task in tasks))
    try:
        return _carried_out(tasks, study, states, shared, options)
    finally:
        values = {planned.point.name: planned.point.values for planned in study.runs}
        write_tables(directory, study.keys, {name: values[name] for name in directory.finished(names)})
        states.write()


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


def _begun(
    study: Study, directory: SweepDirectory, before: dict[str, SweepEntry], changed: Iterable[str]
) -> SweepStates:
    """The states of all runs that are there or to come; `sweep.json` says what each is made of before it is made.

    Args:
        changed: existing runs that are to be replaced.
    """
    code = package_digest()
    for name in changed:
        remove_run(directory.run(name))
    current = {
        planned.point.name: SweepEntry(
            planned.point.values, planned.digest, code, directory.state_of(planned.point.name)
        )
        for planned in study.runs
    }
    aside = {name: entry for name, entry in before.items() if directory.run(name).is_dir()}
    states = SweepStates(directory, study.name, study.keys, aside | current)
    (directory.path / "runs").mkdir(exist_ok=True)
    write_text(directory.study, study.text())
    states.write()
    return states


def _tasks(study: Study, directory: SweepDirectory, finished: set[str]) -> list[Task]:
    """What is left to do; runs that share their data come one after the other."""
    firsts: dict[str, int] = {}
    for number, planned in enumerate(study.runs):
        firsts.setdefault(planned.alike, number)
    left = [planned for planned in study.runs if planned.point.name not in finished]
    return [_task(planned, directory) for planned in sorted(left, key=lambda planned: firsts[planned.alike])]


def _task(planned: PlannedRun, directory: SweepDirectory) -> Task:
    name = planned.point.name
    return Task(
        name,
        planned.settings,
        planned.digest,
        directory.run(name),
        planned.intervals,
        directory.intervals_of(name),
        planned.on_ray,
    )


class _Notes(SilentWatcher):
    """Writes down how runs stand, and passes it on."""

    def __init__(self, states: SweepStates, watcher: SweepWatcher) -> None:
        self._states, self._watcher = states, watcher
        self._errors: dict[str, list[str]] = {}

    def started(self, name: str, done: int, intervals: int) -> None:
        self._states.note(name, "running")
        self._watcher.started(name, done, intervals)

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self._watcher.interval(name, row)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        self._errors.setdefault(name, []).append(outcome.error)
        failure = self._states.directory.failure(name)
        if not outcome.error:
            failure.unlink(missing_ok=True)
        elif not again:
            failure.parent.mkdir(exist_ok=True)
            write_text(failure, "\n".join(self._errors[name]).rstrip() + "\n")
        self._states.note(name, outcome.state, outcome.reason)
        self._watcher.ended(name, outcome, again)


def _carried_out(
    tasks: list[Task], study: Study, states: SweepStates, shared: SharedInputs, options: WorkOptions
) -> dict[str, Outcome]:
    """Runs without Ray of their own side by side; then the others, which have the machine for themselves."""
    notes, outcomes = _Notes(states, options.watcher), dict[str, Outcome]()
    own_ray = all(each.address is None for each in study.runs)
    for on_ray in (False, True):
        these = [task for task in tasks if task.on_ray is on_ray]
        if these:
            jobs = 1 if on_ray else min(options.jobs or usable_cpus(), len(these))
            with Pool(study.document, shared, options, jobs, own_ray=on_ray and own_ray) as pool:
                outcomes |= pool.carry_out(these, notes)
    return outcomes
