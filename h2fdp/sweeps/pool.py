"""The runs of a sweep, or the trials of a search, one after another in this process or side by side in others.

Each is a task that any process can carry out.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
from h2fdp.run.recorders import never, nothing
from h2fdp.runtime.placement import require_ray, usable_cpus
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.task import FAILED, Outcome, Task, TaskContext, carry_out

_SPAWN = get_context("spawn")  # a fork of a process with threads may wait for ever
_SECONDS_TO_STOP = 0.5  # until workers hear that they are to stop; nothing else waits for the clock
_RECORDS_BYTES = 2**30  # room in Ray's store for the records of any run, which are read later


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


class Stopped(Exception):
    """The user stopped work whose results need all of it."""


Following = Callable[[], Task | None]  # which task comes next, if any


@dataclass(frozen=True)
class WorkOptions:
    """The number of runs at a time, and who watches and stops them.

    Attributes:
        jobs: runs at a time; None for one for each CPU; 1 for one after another in this process.
        overwrite: what is in the directory and differs gives way (a sweep's changed runs, another search); else it is
            refused.
        on_start: called when a run's hosts are up; Ray takes signals for itself.
        stop: asked before each run and each interval; true ends the work cleanly.
    """

    jobs: int | None = None
    overwrite: bool = False
    watcher: SweepWatcher = field(default_factory=SilentWatcher)
    on_start: Callable[[], None] = nothing
    stop: Callable[[], bool] = never

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"expected at least 1, found {self.jobs}", key="jobs")


class Pool:
    """Carries out tasks, once: here with one job, else in as many processes, which are kept from task to task.

    Args:
        jobs: tasks at a time.
        own_ray: tasks ask for Ray; they share one session on this machine.
    """

    def __init__(
        self, document: Document, shared: SharedInputs, options: WorkOptions, jobs: int, *, own_ray: bool = False
    ) -> None:
        self._here = TaskContext(document, None, shared, options.on_start)
        self._stop, self._jobs, self._own_ray = options.stop, jobs, own_ray
        self._free: list[_Worker] = []
        self._stack = ExitStack()

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
        with self._stack:
            if self._own_ray:
                require_ray()
                from h2fdp.runtime.ray_session import ray_session  # Ray takes a second to import

                self._stack.enter_context(ray_session(None, _RECORDS_BYTES))
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
        worker = _Worker(self._here.document, self._here.shared.root, threads)
        self._stack.callback(worker.end)
        return worker


class _Worker:
    """A process that carries out one task at a time.

    Each has a pipe of its own, so that one that is lost takes nothing of the others with it, as it would in a
    `ProcessPoolExecutor`.
    """

    def __init__(self, document: Document, root: Path | None, threads: int) -> None:
        try:
            context = pickle.dumps((document, root, threads))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            text = f"other processes cannot have the study ({error}); expected classes and functions of modules"
            raise UserError(f"{text}, or one run after another (--jobs 1, jobs=1)", document.name) from None
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(theirs,))
        with _start_of_process(b"__main__" in context):
            self._process.start()
        theirs.close()
        with suppress(OSError):  # `news` reports one that is lost
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
    document, root, threads = connection.recv()
    here = TaskContext(document, threads, SharedInputs(root))
    for task in iter(connection.recv, None):
        connection.send(carry_out(task, here, connection.send, connection.poll))


def _end_with_parent() -> None:
    """A killed sweep takes its runs with it; they can be continued."""
    parent = parent_process()
    assert parent is not None, "a worker has one"
    parent.join()
    os._exit(1)
