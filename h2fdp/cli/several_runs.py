"""What the commands that carry out many runs share: their options, their progress, and how they are stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2fdp.cli.session import Interrupt, interruptible
from h2fdp.cli.sweep_progress import sweep_progress

if TYPE_CHECKING:
    from h2fdp.sweeps.pool import WorkOptions

Jobs = Annotated[int | None, typer.Option(min=1, help="Runs in parallel.", show_default="one for each CPU")]
Inline = Annotated[bool, typer.Option("--inline", help="Run one after another, in this process.")]
OverwriteRuns = Annotated[bool, typer.Option("--overwrite", help="Repeat the runs that have changed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]


@contextmanager
def stopped_at_once() -> Iterator[Interrupt]:
    """Signals ask the block to stop; a second one ends the command, and says how to go on."""
    with interruptible() as interrupt:
        try:
            yield interrupt
        except KeyboardInterrupt:
            print("stopped at once; run the same command to continue", file=sys.stderr)
            raise typer.Exit(interrupt.exit_code) from None


@contextmanager
def watched(
    interrupt: Interrupt, data_root: Path | None, jobs: int | None, *, inline: bool, overwrite: bool, quiet: bool
) -> Iterator[WorkOptions]:
    """Options of work that shows its progress here and stops when the user asks."""
    from h2fdp.sweeps.pool import WorkOptions, jobs_of

    at_a_time = jobs_of(jobs, inline)
    with sweep_progress(quiet=quiet) as watcher:
        # `listen` again once Ray is up, which takes SIGTERM for itself
        yield WorkOptions(data_root, at_a_time, overwrite, watcher, interrupt.listen, interrupt.asked)
