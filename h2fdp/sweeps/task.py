"""A sweep's directory and the state of its runs; each run, or trial of a search, as a task for any process."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.records.atomic import read_checked_json, write_checked_json, write_text
from h2fdp.records.directory import Inside, has_content, in_use, read_summary
from h2fdp.run.api import Experiment
from h2fdp.run.loop import resume_run, start_run
from h2fdp.run.recorders import OnInterval, RunCallbacks, nothing
from h2fdp.run.result import FINISHED, Run
from h2fdp.run.setup import RunSetup
from h2fdp.sweeps.plan import SharedInputs, digest_of

SCHEMA_VERSION = 2  # 1 had no checksum
WAITING = "waiting"


@dataclass(frozen=True)
class DirectoryOfRuns:
    """The directory of a sweep or of a search: its runs, and how these stand, by name."""

    path: Path

    def run(self, name: str) -> Path:
        """The directory of a run."""
        return self.path / "runs" / name

    def failure(self, name: str) -> Path:
        """The file of what a run failed with at its last try."""
        return self.path / "failures" / f"{name}.txt"

    def note_failure(self, name: str, error: str) -> None:
        """Write down what a run failed with."""
        self.failure(name).parent.mkdir(exist_ok=True)
        write_text(self.failure(name), error.rstrip() + "\n")

    def state_of(self, name: str) -> str:
        """The state of a run, by its own directory; one that says it is running was killed, one whose summary
        is damaged is `damaged`."""
        state = self._summary(name).get("state", WAITING)
        return "killed" if state == "running" else str(state)

    def intervals_of(self, name: str) -> int:
        """The number of intervals that a run has recorded, by its summary."""
        return int(self._summary(name).get("intervals", 0))

    def _summary(self, name: str) -> dict[str, Any]:
        try:
            return read_summary(self.run(name)) or {}
        except UserError:
            return {"state": "damaged"}

    def finished(self, names: Iterable[str]) -> list[str]:
        """The runs that have nothing left to do."""
        return [name for name in names if self.state_of(name) in FINISHED]

    def is_begun(self, name: str) -> bool:
        """Whether a run can be continued, or has a damaged summary, which says nothing about its releases."""
        run = self.run(name)
        has_inputs = (run / "config.yaml").is_file() and (run / "topology.yaml").is_file()
        return has_inputs and self.state_of(name) != WAITING


@dataclass(frozen=True)
class SweepDirectory(DirectoryOfRuns):
    """Paths of one sweep's directory, whose runs have the names of their points."""

    study = Inside("study.yaml")  # its settings written in
    state = Inside("sweep.json")  # the points of the grid, what their runs were made of, and how these stand
    table = Inside("sweep.parquet")  # a row for each run and interval
    summary = Inside("summary.parquet")  # means over seeds, for each combination of other values and each interval


def remove_run(path: Path) -> None:
    """Remove what is there of a run.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("another run is writing to this directory", str(path))
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class SweepEntry:
    """The entry of a point in `sweep.json`.

    Attributes:
        values: swept key -> value.
        digest: of the configuration that its run has, if there is one.
        code: of the code that its run is made by.
    """

    values: dict[str, Any]
    digest: str
    code: str
    state: str = WAITING
    error: str = ""


def write_entries(directory: SweepDirectory, name: str, keys: Sequence[str], entries: Mapping[str, SweepEntry]) -> None:
    """Replace `sweep.json`: at the start of a sweep, and at its end.

    Args:
        name: of the study.
        keys: that are swept.
        entries: point -> its entry, those of earlier grids too as long as they have a run.
    """
    points = {point: vars(entry) for point, entry in entries.items()}
    values = {"schema_version": SCHEMA_VERSION, "name": name, "keys": list(keys), "points": points}
    write_checked_json(directory.state, values, indent=1)


def read_entries(directory: SweepDirectory) -> dict[str, SweepEntry]:
    """The points of an earlier start of the sweep; none where the directory is new.

    Raises:
        UserError: the directory holds something else, or the file is damaged.
    """
    where = str(directory.path)
    taken = has_content(directory.path, "sweep", where)
    if not directory.state.exists():
        if taken:
            raise UserError("the directory contains something other than a sweep; choose another --out", where)
        return {}
    try:
        values = read_checked_json(directory.state) or {}
        return {name: SweepEntry(**entry) for name, entry in values["points"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"damaged ({error!r}); expected the file that a sweep wrote, or another --out"
        raise UserError(text, str(directory.state)) from None


FAILED = "failed"


@dataclass(frozen=True)
class Task:
    """A run to start, or to continue; it goes from process to process.

    Attributes:
        digest: of the configuration that was checked; files that change meanwhile do not go unnoticed.
        path: the run directory.
        intervals: at most.
        done: intervals that an earlier part of it has recorded.
        on_ray: the run itself asks for Ray.
        early_end: a row of the metrics -> why the run ends after this interval; empty where it goes on.
        adjustment: the run that was prepared -> the one that starts.
    """

    name: str
    settings: tuple[Setting, ...]
    digest: str
    path: Path
    intervals: int
    done: int
    on_ray: bool
    early_end: Callable[[Mapping[str, Any]], str] | None = None
    adjustment: Callable[[RunSetup], RunSetup] | None = None


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        state: of its summary, or `failed`.
        error: what it failed with: lines for a user, or a traceback.
        mistake: it failed by a mistake of the user, which trying again would not mend.
        ended_early: why the task ended it; empty where it did not.
    """

    state: str
    error: str = ""
    mistake: bool = False
    ended_early: str = ""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in FINISHED

    @property
    def reason(self) -> str:
        """One line of the error: a mistake's first one, a traceback's last one."""
        lines = self.error.strip().splitlines() or [""]
        return lines[0 if self.mistake else -1]


@dataclass(frozen=True)
class TaskContext:
    """The context that the tasks of a process share.

    Attributes:
        threads: that a run without Ray has; None for what its configuration says.
        on_start: called when the hosts of a run are up.
    """

    document: Document
    threads: int | None
    shared: SharedInputs
    on_start: Callable[[], None] | None = None


def carry_out(task: Task, context: TaskContext, on_interval: OnInterval, stop: Callable[[], bool]) -> Outcome:
    """Run a task to its end, or until `stop` returns true; errors become part of the outcome."""
    reasons: list[str] = []

    def watched(row: dict[str, Any]) -> None:
        on_interval(row)
        if task.early_end is not None and (reason := task.early_end(row)):
            reasons.append(reason)

    try:
        watcher = RunCallbacks(context.on_start or nothing, watched, lambda: bool(reasons) or stop())
        is_begun = DirectoryOfRuns(task.path.parents[1]).is_begun(task.path.name)
        run = _resumed(task, context, watcher) if is_begun else _started(task, context, watcher)
        state = str(run.summary["state"])
        return Outcome(state, ended_early=reasons[0] if reasons and state not in FINISHED else "")
    except UserError as error:
        return Outcome(FAILED, error.report, mistake=True)
    except Exception:
        return Outcome(FAILED, traceback.format_exc())


def _started(task: Task, context: TaskContext, watcher: RunCallbacks) -> Run:
    remove_run(task.path)  # one that was killed before it had written its inputs
    config, topology = context.shared.experiment(context.document, task.settings)
    if digest_of(config, context.shared.network(topology)) != task.digest:
        raise UserError("the topology file changed during the sweep; start the sweep again", task.name)
    setup = context.shared.prepare(_placed(config, task, context), topology)
    if task.adjustment is not None:
        setup = task.adjustment(setup)
    return start_run(setup, task.path, watcher, warn=False)  # a line for each of many runs says less than the table


def _resumed(task: Task, context: TaskContext, watcher: RunCallbacks) -> Run:
    alone = task.on_ray or context.threads is None
    settings = [] if alone else ["runtime.backend=inline", f"runtime.hosts={context.threads}"]
    experiment = Experiment.of_run(task.path, settings)
    tried = task.adjustment is not None  # the price of a search is of what its trials planned, not of their epsilon
    return resume_run(partial(experiment.prepare, context.shared.root), task.path, watcher, keeps_to_plan=tried)


def _placed(config: ExperimentFile, task: Task, context: TaskContext) -> ExperimentFile:
    """The configuration with as many threads as the process may take; which changes no bit."""
    if task.on_ray or context.threads is None:
        return config
    runtime = config.runtime.model_copy(update={"backend": "inline", "hosts": context.threads})
    return config.model_copy(update={"runtime": runtime})
