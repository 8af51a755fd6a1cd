"""`h2fdp run` and `h2fdp resume`: one experiment from a file, and a run that ended early."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2fdp.cli.session import watch
from h2fdp.cli.tables import AsJson, DataRoot, ExperimentPath, Seed, Settings, print_facts, print_json

if TYPE_CHECKING:
    from h2fdp.run import Experiment, Run
    from h2fdp.run.recorders import RunCallbacks


def run_command(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="The run directory.", show_default="runs/<name>-<time>")] = None,
    data_root: DataRoot = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done and its cost, without training.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print a line for each interval.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment and record it in a run directory."""
    from h2fdp.records.directory import check_room
    from h2fdp.run import Experiment
    from h2fdp.run.api import default_directory
    from h2fdp.run.loop import start_run

    experiment = Experiment.from_file(file, settings or [], seed)
    if experiment.config.sweep:
        print("note: `run` runs the experiment itself; the values under `sweep:` are not used", file=sys.stderr)
    if experiment.config.tune:
        print("note: `run` runs the experiment itself; `h2fdp tune` searches what is under `tune:`", file=sys.stderr)
    if dry_run:
        _show_plan(experiment, data_root, as_json)
        return
    directory = out or default_directory(experiment.config)
    check_room(directory, overwrite)  # before the data are loaded
    setup = experiment.prepare(data_root)
    control, intervals = setup.config.control, setup.config.training.intervals
    planned = setup.schedule().planned if control.enabled and control.turns is not None else None
    if not quiet and not as_json:
        for line in setup.chosen:
            typer.echo(line)
        if planned is not None:
            typer.echo(f"planned: {planned} intervals")
    watch(
        lambda watcher: start_run(setup, directory, watcher, overwrite=overwrite, verbose=verbose),
        directory,
        setup.config,
        intervals=planned or intervals,
        again=shlex.join(["h2fdp", "run", str(file), *(word for each in settings or () for word in ("--set", each))]),
        quiet=quiet,
        verbose=verbose,
        as_json=as_json,
    )


def _show_plan(experiment: Experiment, data_root: Path | None, as_json: bool) -> None:
    from h2fdp.cli.privacy import print_accounts, print_noises
    from h2fdp.run.preview import costs_in_words, estimate
    from h2fdp.run.privacy_report import LEAKS

    setup = experiment.prepare(data_root)
    plan = estimate(setup)
    if as_json:
        print_json(plan)
        return
    for line in setup.chosen:
        typer.echo(line)
    elsewhere = ("network", "noises", "privacy", "leaking")
    print_facts({key: value for key, value in plan.items() if key not in elsewhere} | costs_in_words(plan["network"]))
    if plan["privacy"] is not None:
        typer.echo()
        print_accounts(plan["privacy"])
    elif plan["leaking"]:
        typer.echo(f"\nno epsilon: {LEAKS}\n")
    if plan["noises"]:
        print_noises(plan["noises"], "noise of the first interval (standard deviations)")


def resume_command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change how the run continues: runtime.hosts=2."),
    ] = None,
    data_root: DataRoot = None,
    fresh_noise: Annotated[
        bool,
        typer.Option(
            "--fresh-noise",
            help="Release intervals anew that cannot be repeated to the bit (both count); go on with changed own code.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print a line for each interval, and the log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped, killed or ran out of disk space, from its last checkpoint."""
    from h2fdp.run import Experiment
    from h2fdp.run.resume import is_finished, resume_run

    experiment = Experiment.of_run(directory, settings or [])
    if is_finished(directory):
        print(f"note: {directory} has nothing left to do", file=sys.stderr)

    def resumed(watcher: RunCallbacks) -> Run:
        return resume_run(experiment, directory, watcher, data_root=data_root, verbose=verbose, fresh_noise=fresh_noise)

    watch(
        resumed,
        directory,
        experiment.config,
        intervals=experiment.config.training.intervals,
        again=shlex.join(["h2fdp", "run", str(directory / "config.yaml")]),
        quiet=quiet,
        verbose=verbose,
        as_json=as_json,
    )
