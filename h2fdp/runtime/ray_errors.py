"""Wait for answers from hosts, and distinguish how a wait can end: an answer, a loss, a mistake, silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from h2fdp.errors import UserError

_HOST_LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.ActorPlacementGroupRemoved,
    ray.exceptions.OutOfMemoryError,
)
_OBJECT_LOST = (ray.exceptions.ObjectLostError,)
_MOST_NAMES = 10


def gather(pending: Mapping[Any, str], timeout_s: float) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Wait for all, once; the answers by host, and what the others were lost with.

    Args:
        pending: answer to come -> host.

    Raises:
        UserError: a host was silent for `timeout_s`, or a user's mistake came up on one.
    """
    done, late = ray.wait(list(pending), num_returns=len(pending), timeout=timeout_s)
    if late:
        names = [pending[reference] for reference in late]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        text = f"no answer within {timeout_s:g} s from {', '.join(names[:_MOST_NAMES])}{more}"
        raise UserError(f"{text}; {_free_cpus()}", key="runtime.timeout_s")
    found: dict[str, Any] = {}
    lost: dict[str, Exception] = {}
    for reference in done:
        try:
            found[pending[reference]] = ray.get(reference, timeout=timeout_s)
        except ray.exceptions.RayError as error:
            lost[pending[reference]] = _loss(error)
    return found, lost


def lost_for_good(error: Exception) -> bool:
    """Whether the host is gone, and not only an object that it was sent or answered with."""
    return isinstance(error, _HOST_LOST)


def _loss(error: ray.exceptions.RayError) -> Exception:
    """The loss that an error reports; anything else is raised, a user's mistake as a `UserError`."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if isinstance(cause, UserError):
        for problem in cause.problems:
            if problem.trace:  # what raised it stayed on the host
                cause.add_note(problem.trace)
        raise cause from None
    if isinstance(cause, _HOST_LOST + _OBJECT_LOST) and not getattr(cause, "actor_init_failed", False):
        return cause
    raise error


def _free_cpus() -> str:
    cpus = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    return f"{free:g} of the cluster's {cpus:g} CPUs are free"
