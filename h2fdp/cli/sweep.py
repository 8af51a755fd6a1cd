"""`h2fdp sweep`: the grid of a file's `sweep:` section."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.session import Jobs, OverwriteRuns, Quiet, stopped_at_once, watched
from h2fdp.cli.tables import AsJson, DataRoot, ExperimentPath, Settings, print_facts, print_json, print_table

if TYPE_CHECKING:
    from h2fdp.sweeps import Sweep
    from h2fdp.sweeps.task import Outcome

_MOST_ROWS = 60
MEANS = "means over seeds, and half of their 95 % intervals (Student's t)"


def sweep_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The sweep's directory.", show_default="sweeps/<name>")] = None,
    data_root: DataRoot = None,
    jobs: Jobs = None,
    overwrite: OverwriteRuns = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values under `sweep:`; repeat the command to continue."""
    from h2fdp.sweeps.api import Sweep
    from h2fdp.sweeps.conduct import conduct
    from h2fdp.sweeps.study import SharedInputs, read_study

    shared = SharedInputs()
    study = read_study(file, settings or [], shared)
    directory = out or study.directory
    with (
        stopped_at_once() as interrupt,
        watched(interrupt, data_root, jobs, overwrite=overwrite, quiet=quiet) as options,
    ):
        outcomes = conduct(study, directory, shared, options)
    sweep = Sweep(directory, tuple(planned.point.name for planned in study.runs))
    finished = len(sweep.runs)
    if as_json:
        print_json(_as_json(sweep, finished))
    else:
        _show(sweep, finished)
    if interrupt.asked() and finished < len(sweep.names):
        print(
            f"stopped: {finished} of {len(sweep.names)} runs are done; run the same command to continue",
            file=sys.stderr,
        )
        raise typer.Exit(interrupt.exit_code)
    _exit_for(outcomes, sweep)


def _exit_for(outcomes: dict[str, Outcome], sweep: Sweep) -> None:
    """Tell failures: 2 where all are the user's mistakes, else 1."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.error}
    for name, outcome in failed.items():
        reason = outcome.error.strip() if outcome.mistake else outcome.error.strip().rpartition("\n")[2]
        print(f"{name} failed: {reason}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(sweep.names)} runs failed: see {sweep.directory / 'failures'}", file=sys.stderr)
        raise typer.Exit(2 if all(outcome.mistake for outcome in failed.values()) else 1)


def _as_json(sweep: Sweep, finished: int) -> dict[str, Any]:
    return {
        "directory": str(sweep.directory),
        "runs": len(sweep.names),
        "finished": finished,
        "failed": sorted(sweep.failures),
        "last": _last_intervals(sweep).to_dict("records"),
    }


def _last_intervals(sweep: Sweep) -> Any:
    """The last row of the summary of each combination of values other than the seed."""
    from h2fdp.sweeps.directory import last_intervals

    return last_intervals(sweep.summary)


def _show(sweep: Sweep, finished: int) -> None:
    """The table that a sweep ends with: what the runs of each combination reached, as `h2fdp table` has it."""
    if finished:
        from h2fdp.reports.paper import paper_table
        from h2fdp.reports.study_numbers import study_numbers

        rows = paper_table(study_numbers(sweep.directory)).texts()
        print_table(rows[:_MOST_ROWS], title=MEANS)
        if len(rows) > _MOST_ROWS:
            typer.echo(f"and {len(rows) - _MOST_ROWS} more (summary.parquet has them all)")
        for name, since in _not_finite(sweep):
            typer.echo(f"not finite: the test loss of {name} since interval {since}; its accuracy says nothing")
    print_facts({"runs": f"{finished} of {len(sweep.names)} done", "sweep directory": sweep.directory})


def _not_finite(sweep: Sweep) -> Iterator[tuple[str, int]]:
    """Runs that ended without a finite test loss, and since which interval."""
    from h2fdp.records import read_summary

    for name in sweep.names:
        summary = read_summary(sweep.directory / "runs" / name) or {}
        if since := summary.get("not_finite_from"):
            yield name, since
