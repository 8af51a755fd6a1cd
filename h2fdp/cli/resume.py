"""`h2fdp resume`: a run that ended early goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from h2fdp.cli.options import AsJson, DataRoot
from h2fdp.cli.session import watch


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

    watch(
        lambda watcher: resume_run(experiment, directory, watcher, data_root=data_root, verbose=verbose),
        directory,
        experiment.config.training.intervals,
        quiet=quiet,
        verbose=verbose,
        as_json=as_json,
    )
