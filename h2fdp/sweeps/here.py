"""Runs of a sweep one after another in this process."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from h2fdp.sweeps.task import TaskContext, carry_out
from h2fdp.sweeps.work import Work

_RECORDS_BYTES = 2**30  # room in Ray's store for the records of any run; which these are is not known yet


def one_after_another(work: Work, context: TaskContext, *, own_ray: bool) -> None:
    """Carry out all tasks here; with `own_ray` those that ask for Ray share one session on this machine."""
    with ExitStack() as stack:
        if own_ray:
            from h2fdp.runtime.ray_session import ray_session  # Ray takes a second to import

            stack.enter_context(ray_session(None, _RECORDS_BYTES))
        while (task := work.next()) is not None:
            work.ended(task, carry_out(task, context, partial(work.interval, task), work.stop))
