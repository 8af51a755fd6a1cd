"""The runs of a sweep, or the trials of a search, one after another in this process or side by side in others.

Each is a task that any process can carry out.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.run.api import Experiment
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import OnInterval, RunCallbacks, never, nothing
from h2fdp.run.result import Run
from h2fdp.run.resume import resume_run
from h2fdp.run.setup import RunSetup
from h2fdp.run.state import FINISHED
from h2fdp.runtime.section import require_ray, usable_cpus
from h2fdp.sweeps.directory import SweepDirectory, remove_run
from h2fdp.sweeps.study import SharedInputs, digest_of

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
    """How a run ended.

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
        """Nothing is left to do."""
        return self.state in FINISHED

    @property
    def reason(self) -> str:
        """One line of the error: a mistake's first one, a traceback's last one."""
        lines = self.error.strip().splitlines() or [""]
        return lines[0 if self.mistake else -1]


@dataclass(frozen=True)
class TaskContext:
    """What the tasks of a process share.

    Attributes:
        threads: that a run without Ray has; None for what its configuration says.
        on_start: called when the hosts of a run are up.
    """

    document: Document
    data_root: Path | None
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
        begun = SweepDirectory(task.path.parents[1]).is_begun(task.path.name)
        run = _resumed(task, context, watcher) if begun else _started(task, context, watcher)
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
    setup = context.shared.prepare(_placed(config, task, context), topology, context.data_root)
    if task.adjustment is not None:
        setup = task.adjustment(setup)
    return start_run(setup, task.path, watcher, warn=False)  # a line for each of many runs says less than the table


def _resumed(task: Task, context: TaskContext, watcher: RunCallbacks) -> Run:
    alone = task.on_ray or context.threads is None
    settings = [] if alone else ["runtime.backend=inline", f"runtime.hosts={context.threads}"]
    experiment = Experiment.of_run(task.path, settings)
    tried = task.adjustment is not None  # the price of a search is of what its trials planned, not of their epsilon
    return resume_run(experiment, task.path, watcher, data_root=context.data_root, keeps_to_plan=tried)


def _placed(config: ExperimentFile, task: Task, context: TaskContext) -> ExperimentFile:
    """The configuration with as many threads as the process may take; which changes no bit."""
    if task.on_ray or context.threads is None:
        return config
    runtime = config.runtime.model_copy(update={"backend": "inline", "hosts": context.threads})
    return config.model_copy(update={"runtime": runtime})


_SPAWN = get_context("spawn")  # a fork of a process with threads may wait for ever
_SECONDS_TO_STOP = 0.5  # until workers hear that they are to stop; nothing else waits for the clock
_RECORDS_BYTES = 2**30  # room in Ray's store for the records of any run; which these are is not known yet


class SweepWatcher(Protocol):
    """Follows many runs; what inherits from this ignores the events that it does not take."""

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        """The work starts: runs that there are, runs that are finished, intervals left at most (0: not known)."""
        return

    def started(self, name: str, done: int, intervals: int) -> None:
        """A run of at most `intervals` intervals starts, or continues after `done` of them."""
        return

    def interval(self, name: str, row: dict[str, Any]) -> None:
        """The newest row of a run's metrics."""
        return

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        """A run ended; `again`: it will be tried once more."""
        return


class SilentWatcher(SweepWatcher):
    """Ignores every event."""


Following = Callable[[], Task | None]  # which task comes next, if any


@dataclass(frozen=True)
class WorkOptions:
    """Where runs find data, how many there are at a time, and who watches and stops them.

    Attributes:
        data_root: folder of the data sets; None for the default.
        jobs: runs at a time; None for one for each CPU; 1 for one after another in this process.
        overwrite: what is in the directory and differs gives way (a sweep's changed runs, another search); else it is
            refused.
        on_start: called when a run's hosts are up; Ray takes signals for itself.
        stop: asked before each run and each interval; true ends the work cleanly.
    """

    data_root: Path | None = None
    jobs: int | None = None
    overwrite: bool = False
    watcher: SweepWatcher = field(default_factory=SilentWatcher)
    on_start: Callable[[], None] = nothing
    stop: Callable[[], bool] = never

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"expected at least 1, found {self.jobs}", key="jobs")


class Pool:
    """Carries out tasks: here with one job, else in as many processes, which are kept from task to task.

    Args:
        jobs: tasks at a time.
        own_ray: tasks ask for Ray; they share one session on this machine.
    """

    def __init__(
        self, document: Document, shared: SharedInputs, options: WorkOptions, jobs: int, *, own_ray: bool = False
    ) -> None:
        self._here = TaskContext(document, options.data_root, None, shared, options.on_start)
        self._stop, self._jobs, self._own_ray = options.stop, jobs, own_ray
        self._free: list[_Worker] = []
        self._stack = ExitStack()

    def __enter__(self) -> Pool:
        if self._own_ray:
            require_ray()
            from h2fdp.runtime.ray_session import ray_session  # Ray takes a second to import

            self._stack.enter_context(ray_session(None, _RECORDS_BYTES))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def carry_out(self, tasks: Iterable[Task], watcher: SweepWatcher) -> dict[str, Outcome]:
        """Carry out tasks until all have ended or the work is to stop; what failed by no mistake of the user is tried
        once more, after the others. A task is asked for when a process is free.

        Returns:
            how the tasks ended that came to an end for good, by name.
        """
        coming, again, outcomes = iter(tasks), deque[Task](), dict[str, Outcome]()
        tried = set[str]()

        def following() -> Task | None:
            if self._stop() or (task := next(coming, None) or (again.popleft() if again else None)) is None:
                return None
            watcher.started(task.name, task.done, task.intervals)
            return task

        ended = self._one_by_one if self._jobs == 1 else self._side_by_side
        for task, outcome in ended(following, watcher):
            repeated = bool(outcome.error) and not outcome.mistake and task.name not in tried
            if repeated:
                tried.add(task.name)
                again.append(replace(task, done=0))
            else:
                outcomes[task.name] = outcome
            watcher.ended(task.name, outcome, repeated)
        return outcomes

    def _one_by_one(self, following: Following, watcher: SweepWatcher) -> Iterator[tuple[Task, Outcome]]:
        while (task := following()) is not None:
            yield task, carry_out(task, self._here, partial(watcher.interval, task.name), self._stop)

    def _side_by_side(self, following: Following, watcher: SweepWatcher) -> Iterator[tuple[Task, Outcome]]:
        busy: dict[Connection, tuple[_Worker, Task]] = {}
        stopping = False
        while True:
            while len(busy) < self._jobs and (task := following()) is not None:
                worker = self._free.pop() if self._free else self._new_worker()
                worker.send(task)
                busy[worker.connection] = worker, task
            if not busy:
                return
            if not stopping and self._stop():
                stopping = True
                for worker, _ in busy.values():
                    worker.send(None)
            for connection in wait(list(busy), timeout=_SECONDS_TO_STOP):
                assert isinstance(connection, Connection)
                worker, task = busy[connection]
                news = worker.news()
                if not isinstance(news, Outcome):
                    watcher.interval(task.name, news)
                    continue
                del busy[connection]
                if worker.is_there:
                    self._free.append(worker)
                yield task, news

    def _new_worker(self) -> _Worker:
        threads = max(1, usable_cpus() // self._jobs)
        worker = _Worker(self._here.document, self._here.data_root, threads)
        self._stack.callback(worker.end)
        return worker


class _Worker:
    """A process that carries out one task at a time.

    Each has a pipe of its own, so that one that is lost takes nothing of the others with it, as it would in a
    `ProcessPoolExecutor`.
    """

    def __init__(self, document: Document, data_root: Path | None, threads: int) -> None:
        try:
            context = pickle.dumps((document, data_root, threads))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            text = f"other processes cannot have the study ({error}); expected classes and functions of modules"
            raise UserError(f"{text}, or one run after another (--jobs 1, jobs=1)", document.name) from None
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(theirs,))
        with _start_of_process(b"__main__" in context):
            self._process.start()
        theirs.close()
        with suppress(OSError):  # of one that is lost, `news` tells
            self.connection.send_bytes(context)
        self.is_there = True

    def send(self, task: Task | None) -> None:
        """Give it a task; or none, to end the one that it has after an interval, and itself."""
        with suppress(OSError):
            self.connection.send(task)

    def news(self) -> dict[str, Any] | Outcome:
        """The row of an interval, or how its task ended."""
        try:
            news: dict[str, Any] | Outcome = self.connection.recv()
        except (EOFError, OSError):
            self.end()
            return Outcome(FAILED, f"the process of the run was lost (exit code {self._process.exitcode})")
        return news

    def end(self) -> None:
        """End it at once."""
        self.is_there = False
        self._process.kill()
        self._process.join()
        self.connection.close()


@contextmanager
def _start_of_process(uses_script: bool) -> Iterator[None]:
    """A new process computes with one thread in each of its own, and runs the user's script only to find parts that
    are defined in it: the script is where the sweep was started."""
    script, threads = sys.modules["__main__"], os.environ.get("OMP_NUM_THREADS")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not uses_script:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]


def _work(connection: Connection) -> None:
    """The life of a worker's process. What it holds of data and topologies goes from one task to the next."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which a terminal sends to all; the sweep's process says when
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for stream in (1, 2):  # what runs print would stand in the display of the sweep
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    document, data_root, threads = connection.recv()
    here = TaskContext(document, data_root, threads, SharedInputs())
    for task in iter(connection.recv, None):
        connection.send(carry_out(task, here, connection.send, connection.poll))


def _end_with_parent() -> None:
    """A killed sweep takes its runs with it; they can be continued."""
    parent = parent_process()
    assert parent is not None, "a worker has one"
    parent.join()
    os._exit(1)
