"""`h2fdp resume`: a run that ended early goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2fdp.cli.options import AsJson, DataRoot
from h2fdp.cli.progress import Display
from h2fdp.cli.session import watch

if TYPE_CHECKING:
    from h2fdp.run import Run


def resume_command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change how it runs from now on: runtime.hosts=2."),
    ] = None,
    data_root: DataRoot = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line for each interval, and the log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was stopped, killed or ran out of disk, from its last checkpoint."""
    from h2fdp.run import Experiment
    from h2fdp.run.resume import is_finished, resume_run

    experiment = Experiment.of_run(directory, settings or [])
    if is_finished(directory):
        print(f"note: {directory} has nothing left to do", file=sys.stderr)

    def run(display: Display, started: Callable[[], None], stop: Callable[[], bool]) -> Run:
        return resume_run(
            experiment,
            directory,
            data_root=data_root,
            on_start=started,
            on_interval=display.update,
            stop=stop,
            verbose=verbose,
        )

    watch(run, directory, experiment.config.training.intervals, quiet=quiet, verbose=verbose, as_json=as_json)
