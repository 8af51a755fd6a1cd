"""Runs of a sweep side by side: processes of one Ray session on this machine, each with a run at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from h2fdp.config import Document
from h2fdp.runtime.ray_session import ray_session
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.task import FAILED, Outcome, Task, TaskContext, carry_out
from h2fdp.sweeps.work import Work

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_TO_ANSWER = 2.0


@dataclass(frozen=True)
class LatestRow:
    """How far a worker has come: the newest row of the metrics of its last run, if there is one."""

    name: str = ""
    row: dict[str, Any] | None = None


class Worker:
    """A process that carries out one task at a time and answers meanwhile.

    What it holds of data and topologies goes from one task to the next.
    """

    def __init__(self, folder: str, document: Document, data_root: Path | None, threads: int) -> None:
        os.chdir(folder)  # relative paths of the study are the driver's
        self._context = TaskContext(document, data_root, threads, SharedInputs())
        self._stop = threading.Event()
        self._latest = LatestRow()

    def run(self, task: Task) -> Outcome:
        """Carry out a task."""

        def keep(row: dict[str, Any]) -> None:
            self._latest = LatestRow(task.name, row)

        return carry_out(task, self._context, keep, self._stop.is_set)

    def latest(self, stop: bool) -> LatestRow:
        """How far the run is; `stop` ends it after its interval."""
        if stop:
            self._stop.set()
        return self._latest


class _WorkerSlot:
    """A worker's place: the process that is there now, and its task."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.worker = make()
        self.task: Task | None = None
        self.pending: Any = None

    def give(self, task: Task) -> None:
        """Let the worker carry out a task."""
        self.task, self.pending = task, self.worker.run.remote(task)

    def result(self) -> Outcome:
        """What came of the task that has ended; a worker that was lost has a successor."""
        self.task = None
        try:
            outcome: Outcome = ray.get(self.pending)
        except ray.exceptions.RayError as error:
            with suppress(ray.exceptions.RayError):
                ray.kill(self.worker)
            self.worker = self._make()
            return Outcome(FAILED, f"the process of the run was lost: {str(error).strip()}")
        return outcome


def side_by_side(
    work: Work, document: Document, data_root: Path | None, workers: int, threads: int, on_start: Callable[[], None]
) -> None:
    """Carry out all tasks on so many workers.

    Args:
        threads: of each worker.
        on_start: called when Ray is up.
    """
    with ray_session(None, data_bytes=0):
        on_start()
        cpus = ray.cluster_resources().get("CPU", 1.0)  # type: ignore[no-untyped-call]
        options = {"num_cpus": min(1.0, cpus / workers), "max_concurrency": 2, "max_restarts": 0}
        actor = ray.remote(Worker).options(**options)
        shared = ray.put(document)
        places = [_WorkerSlot(lambda: actor.remote(os.getcwd(), shared, data_root, threads)) for _ in range(workers)]
        while True:
            for place in places:
                if place.task is None and (task := work.next()) is not None:
                    place.give(task)
            busy = {place.pending: place for place in places if place.task is not None}
            if not busy:
                return
            done, _ = ray.wait(list(busy), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
            _tell_progress([place for reference, place in busy.items() if reference not in done], work)
            for reference in done:
                task = busy[reference].task
                assert task is not None, "a place with an answer had a task"
                work.ended(task, busy[reference].result())


def _tell_progress(places: list[_WorkerSlot], work: Work) -> None:
    """Ask workers how far they are, and pass on the wish to stop; one that is slow to answer is asked again later."""
    answers = {place.worker.latest.remote(work.stop()): place for place in places}
    if not answers:
        return
    ready, _ = ray.wait(list(answers), num_returns=len(answers), timeout=_SECONDS_TO_ANSWER)
    for reference in ready:
        with suppress(ray.exceptions.RayError):  # of a lost worker, its task tells
            look: LatestRow = ray.get(reference)
            task = answers[reference].task
            if look.row is not None and task is not None and look.name == task.name:
                work.interval(task, look.row)
