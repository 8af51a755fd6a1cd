"""How the runs of a sweep, or the trials of a search, are carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from h2fdp.errors import UserError
from h2fdp.run.recorders import never, nothing
from h2fdp.sweeps.work import SilentWatcher, SweepWatcher


@dataclass(frozen=True)
class WorkOptions:
    """Where runs find data, how many there are at a time, and who watches and stops them.

    Attributes:
        data_root: folder of the data sets; None for the default.
        jobs: runs at a time; None for one for each CPU.
        overwrite: what is in the directory and differs gives way (a sweep's changed runs, another search); else it is
            refused.
        on_start: called when Ray, or a run's hosts, are up.
        stop: asked before each run and each interval; true ends the work cleanly.
    """

    data_root: Path | None = None
    jobs: int | None = None
    overwrite: bool = False
    watcher: SweepWatcher = field(default_factory=SilentWatcher)
    on_start: Callable[[], None] = nothing
    stop: Callable[[], bool] = never


def jobs_of(jobs: int | None, inline: bool) -> int | None:
    """Runs at a time; None for one for each CPU.

    Raises:
        UserError: fewer than one, or more than one in one process.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"expected at least 1, found {jobs}", key="jobs")
    if inline and jobs not in (None, 1):
        raise UserError(f"inline runs one at a time; expected no jobs, found {jobs}", key="jobs")
    return 1 if inline else jobs
