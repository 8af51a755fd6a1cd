"""The queue of remaining runs: its watchers, the second attempt of runs that fail, and runs one after another in this
process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from h2fdp.records.atomic import write_text
from h2fdp.runtime.section import require_ray
from h2fdp.sweeps.directory import SweepStates
from h2fdp.sweeps.task import Outcome, Task, TaskContext, carry_out

_RUNNING = "running"


class SweepWatcher(Protocol):
    """Shows the progress of a sweep."""

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        """The sweep starts: runs in the grid, runs that are finished, intervals left at most (0: not known)."""
        ...

    def started(self, name: str, done: int, intervals: int) -> None:
        """A run of at most `intervals` intervals starts, or continues after `done` of them."""
        ...

    def interval(self, name: str, row: dict[str, Any]) -> None:
        """The newest row of a run's metrics."""
        ...

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        """A run ended; `again`: it will be tried once more."""
        ...


class SilentWatcher:
    """Nobody looks."""

    def begin(self, runs: int, finished: int, intervals: int) -> None: ...

    def started(self, name: str, done: int, intervals: int) -> None: ...

    def interval(self, name: str, row: dict[str, Any]) -> None: ...

    def ended(self, name: str, outcome: Outcome, again: bool) -> None: ...


class Queue(Protocol):
    """Tasks that workers carry out."""

    def next(self) -> Task | None:
        """The next task; None when there is none to start now, though there may be one when another has ended."""
        ...

    def interval(self, task: Task, row: dict[str, Any]) -> None:
        """A task has come so far."""
        ...

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A task came to an end."""
        ...

    def stop(self) -> bool:
        """Whether tasks are to end after their intervals, and none is to start."""
        ...


class Work(Queue):
    """The tasks of a sweep, handed out one by one.

    Args:
        stop: whether runs are to end after their intervals, and none is to start.

    Attributes:
        outcomes: of the tasks that came to an end for good, by name.
    """

    def __init__(
        self, tasks: Iterable[Task], states: SweepStates, watcher: SweepWatcher, stop: Callable[[], bool]
    ) -> None:
        self._waiting = deque(tasks)
        self._states = states
        self._watcher = watcher
        self._errors: dict[str, list[str]] = {}
        self._stop = stop
        self.outcomes: dict[str, Outcome] = {}

    def next(self) -> Task | None:
        """The next task; None when there is none to start now, though one that fails may come back."""
        if not self._waiting or self.stop():
            return None
        task = self._waiting.popleft()
        self._states.note(task.name, _RUNNING)
        self._watcher.started(task.name, task.done, task.intervals)
        return task

    def stop(self) -> bool:
        """Whether runs are to end after their intervals, and none is to start."""
        return self._stop()

    def interval(self, task: Task, row: dict[str, Any]) -> None:
        """A task has come so far."""
        self._watcher.interval(task.name, row)

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A task came to an end: a failure of no user's is tried once more, after the others; then it is kept apart."""
        errors = self._errors.setdefault(task.name, [])
        errors += [outcome.error] if outcome.error else []
        again = bool(outcome.error) and not outcome.mistake and len(errors) < 2
        directory = self._states.directory
        if again:
            self._waiting.append(replace(task, begun=directory.is_begun(task.name), done=0))
        elif outcome.error:
            directory.failure(task.name).parent.mkdir(exist_ok=True)
            write_text(directory.failure(task.name), "\n".join(errors).rstrip() + "\n")
        else:
            directory.failure(task.name).unlink(missing_ok=True)
        if not again:
            self.outcomes[task.name] = outcome
        self._states.note(task.name, outcome.state, outcome.reason)
        self._watcher.ended(task.name, outcome, again)


_RECORDS_BYTES = 2**30  # room in Ray's store for the records of any run; which these are is not known yet


def one_after_another(work: Queue, context: TaskContext, *, own_ray: bool) -> None:
    """Carry out all tasks here; with `own_ray` those that ask for Ray share one session on this machine."""
    with ExitStack() as stack:
        if own_ray:
            require_ray()
            from h2fdp.runtime.ray_session import ray_session  # Ray takes a second to import

            stack.enter_context(ray_session(None, _RECORDS_BYTES))
        while (task := work.next()) is not None:
            work.ended(task, carry_out(task, context, partial(work.interval, task), work.stop))
