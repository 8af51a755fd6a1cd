"""Carry out a study: find out what is left of it, make those runs, write the tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from h2fdp.errors import Problem, UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.lock import locked
from h2fdp.run.fingerprint import package_digest
from h2fdp.runtime.ray_needed import require_ray
from h2fdp.runtime.section import usable_cpus
from h2fdp.sweeps.changes import changed_runs, refuse
from h2fdp.sweeps.directory import SweepDirectory, SweepEntry, SweepStates, read_entries, remove_run
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import PlannedRun, Study
from h2fdp.sweeps.table import write_tables
from h2fdp.sweeps.task import Outcome, Task, TaskContext
from h2fdp.sweeps.work import Work, one_after_another
from h2fdp.sweeps.work_options import WorkOptions


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
        directory.is_begun(name),
        planned.intervals,
        directory.intervals_of(name),
        planned.on_ray,
    )


def _carried_out(
    tasks: list[Task], study: Study, states: SweepStates, shared: SharedInputs, options: WorkOptions
) -> dict[str, Outcome]:
    """Runs without Ray of their own side by side; then the others, which have the machine for themselves."""
    light = [task for task in tasks if not task.on_ray]
    heavy = [task for task in tasks if task.on_ray]
    outcomes: dict[str, Outcome] = {}
    cpus = usable_cpus()
    jobs = min(cpus if options.jobs is None else options.jobs, len(light))
    context = TaskContext(study.document, options.data_root, None, shared, options.on_start)
    if light:
        work = Work(light, states, options.watcher, options.stop)
        if jobs == 1:
            one_after_another(work, context, own_ray=False)
        else:
            require_ray()
            from h2fdp.sweeps.side_by_side import side_by_side  # Ray takes a second to import

            side_by_side(work, study.document, options.data_root, jobs, max(1, cpus // jobs), options.on_start)
        outcomes |= work.outcomes
    if heavy:
        work = Work(heavy, states, options.watcher, options.stop)
        one_after_another(work, context, own_ray=all(each.address is None for each in study.runs))
        outcomes |= work.outcomes
    return outcomes
