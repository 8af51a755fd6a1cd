"""Runs of a sweep side by side: processes of one Ray session on this machine, each with a run at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from h2fdp.config import Document
from h2fdp.runtime.ray_session import ray_session
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.task import FAILED, Outcome, Task, TaskContext, carry_out
from h2fdp.sweeps.work import Queue

_SECONDS_TO_STOP = 0.5  # until workers hear that the sweep is to stop; nothing else waits for the clock


class Worker:
    """A process that carries out one task at a time and tells meanwhile how far it is.

    What it holds of data and topologies goes from one task to the next. Tasks are numbered, from 1.
    """

    def __init__(self, folder: str, document: Document, data_root: Path | None, threads: int) -> None:
        os.chdir(folder)  # relative paths of the study are the driver's
        self._context = TaskContext(document, data_root, threads, SharedInputs())
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._rows: list[dict[str, Any]] = []  # the newest one of the task that runs, if there is one
        self._running = self._ended = 0

    def run(self, number: int, task: Task) -> Outcome:
        """Carry out a task."""
        with self._changed:
            self._running, self._rows = number, []
        try:
            return carry_out(task, self._context, self._keep, self._stop.is_set)
        finally:
            with self._changed:
                self._ended = number
                self._changed.notify_all()

    def _keep(self, row: dict[str, Any]) -> None:
        with self._changed:
            self._rows = [row]
            self._changed.notify_all()

    def news(self, number: int) -> dict[str, Any] | None:
        """The newest row of a task's metrics, as soon as there is one that was not asked for; None after its end."""

        def told() -> bool:
            return self._ended >= number or (self._running == number and bool(self._rows))

        with self._changed:
            self._changed.wait_for(told)
            return self._rows.pop() if self._running == number and self._rows else None

    def stop(self) -> None:
        """End the task after its interval."""
        self._stop.set()


class _WorkerSlot:
    """A worker's place: the process that is there now, its task, and the answers that are awaited."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._number = 0
        self.worker = make()
        self.task: Task | None = None
        self.pending: Any = None
        self.news: Any = None

    def give(self, task: Task) -> None:
        """Let the worker carry out a task."""
        self._number += 1
        self.task, self.pending = task, self.worker.run.remote(self._number, task)
        self.ask()

    def ask(self) -> None:
        """Wait for the next row."""
        self.news = self.worker.news.remote(self._number)

    def row(self) -> dict[str, Any] | None:
        """The row that has come; None where the task is about to end."""
        try:
            row: dict[str, Any] | None = ray.get(self.news)
        except ray.exceptions.RayError:  # of a lost worker, its task tells
            return None
        return row

    def result(self) -> Outcome:
        """What came of the task that has ended; a worker that was lost has a successor."""
        self.task = self.news = None
        try:
            outcome: Outcome = ray.get(self.pending)
        except ray.exceptions.RayError as error:
            with suppress(ray.exceptions.RayError):
                ray.kill(self.worker)
            self.worker, self._number = self._make(), 0
            return Outcome(FAILED, f"the process of the run was lost: {str(error).strip()}")
        return outcome


def side_by_side(
    work: Queue, document: Document, data_root: Path | None, workers: int, threads: int, on_start: Callable[[], None]
) -> None:
    """Carry out all tasks on several workers.

    Args:
        threads: of each worker.
        on_start: called when Ray is up.
    """
    with ray_session(None, data_bytes=0):
        on_start()
        cpus = ray.cluster_resources().get("CPU", 1.0)  # type: ignore[no-untyped-call]
        options = {"num_cpus": min(1.0, cpus / workers), "max_concurrency": 3, "max_restarts": 0}
        actor = ray.remote(Worker).options(**options)
        shared = ray.put(document)
        places = [_WorkerSlot(lambda: actor.remote(os.getcwd(), shared, data_root, threads)) for _ in range(workers)]
        stopping = False
        while True:
            for place in places:
                if place.task is None and (task := work.next()) is not None:
                    place.give(task)
            busy = [place for place in places if place.task is not None]
            if not busy:
                return
            if work.stop() and not stopping:
                stopping = True
                for place in busy:
                    place.worker.stop.remote()
            awaited = [each for place in busy for each in (place.pending, place.news) if each is not None]
            done, _ = ray.wait(awaited, num_returns=1, timeout=_SECONDS_TO_STOP)
            for place in busy:
                _take(place, set(done), work)


def _take(place: _WorkerSlot, done: set[Any], work: Queue) -> None:
    """Pass on what a worker has answered, if anything."""
    task = place.task
    assert task is not None, "a busy place has a task"
    if place.news in done:
        row = place.row()
        place.news = None
        if row is not None:
            work.interval(task, row)
            place.ask()
    if place.pending in done:
        work.ended(task, place.result())
