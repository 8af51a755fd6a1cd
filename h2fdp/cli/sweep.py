"""`h2fdp sweep`, `table`, `plot`, `tune`: the grid of a file, what it reached, for a paper; the search of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.session import Jobs, OverwriteRuns, Quiet, interruptible, watched
from h2fdp.cli.tables import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Settings,
    print_facts,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from h2fdp.sweeps import Sweep
    from h2fdp.sweeps.task import Outcome
    from h2fdp.tuning import Tuned
    from h2fdp.tuning.plan import TunePlan

_MOST_ROWS, _MOST_TRIALS = 60, 10
_HALF = "and half of their 95 % intervals (Student's t)"
SweepPath = Annotated[Path, typer.Argument(metavar="SWEEP", help="A sweep's directory.")]
Target = Annotated[
    float | None, typer.Option(help="A test accuracy, as 0.7: what it cost to reach it first.", show_default=False)
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="KEY=VALUE", help="Only points of the grid with this value.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=TEXT", help="Another word for a key, a value or a measure."),
]


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
        interruptible() as interrupt,
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
    from h2fdp.sweeps.conduct import last_intervals

    return {
        "directory": str(sweep.directory),
        "runs": len(sweep.names),
        "finished": finished,
        "failed": sorted(sweep.failures),
        "last": last_intervals(sweep.summary).to_dict("records"),  # of each combination of values but the seed
    }


def _show(sweep: Sweep, finished: int) -> None:
    """The table that a sweep ends with: what the runs of each combination reached, as `h2fdp table` has it."""
    if finished:
        from h2fdp.reports.paper import paper_table
        from h2fdp.reports.study_numbers import study_numbers

        rows = paper_table(study_numbers(sweep.directory)).texts()
        print_table(rows[:_MOST_ROWS], title=f"means over seeds, {_HALF}")
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


def table_command(
    sweep: SweepPath,
    show: Annotated[
        list[str] | None, typer.Option(metavar="MEASURE", help="A column: accuracy, epsilon, energy_j, ...")
    ] = None,
    across: Annotated[str | None, typer.Option(metavar="KEY", help="Its values become the columns.")] = None,
    target: Target = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE", help="Differences from the runs with this value, seed by seed."),
    ] = None,
    where: Where = None,
    label: Labels = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it: .tex, .csv or .md.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the table of a sweep: means over seeds with 95 % intervals, costs to reach an accuracy."""
    from h2fdp.records.atomic import output_file, write_text
    from h2fdp.reports.paper import FORMATS, paper_table
    from h2fdp.reports.study_numbers import study_numbers

    numbers = study_numbers(sweep, target, against).where(where or [])
    table = paper_table(numbers, show or [], across, labels_of(label or []))
    if out is not None:
        with output_file(out, "--out", list(FORMATS)):
            write_text(out, FORMATS[out.suffix](table))
        typer.echo(str(out))
    elif as_json:
        print_json(table.values())
    else:
        of = "means over seeds" + ("" if against is None else f" of the differences from {against}")
        print_table(table.texts(), title=f"{of}, {_HALF}")


def plot_command(
    sweep: SweepPath,
    x: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="A swept key; or interval, energy_j, clock_s, bytes.", show_default=False),
    ] = None,
    line: Annotated[str | None, typer.Option(metavar="KEY", help="A swept key with a line for each value.")] = None,
    y: Annotated[str, typer.Option(metavar="MEASURE", help="accuracy, loss, epsilon, energy_j, ...")] = "accuracy",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".pdf, .png, .svg, or .pgf for LaTeX.", show_default="in SWEEP")
    ] = None,
    target: Target = None,
    where: Where = None,
    label: Labels = None,
) -> None:
    """Draw a figure of a sweep: a measure over a swept key, with 95 % error bars."""
    from h2fdp.errors import UserError
    from h2fdp.reports.figures import AXES
    from h2fdp.reports.paper import along_runs, over_key
    from h2fdp.reports.pictures import write_figure
    from h2fdp.reports.study_numbers import study_numbers
    from h2fdp.reports.sweep_view import SweepView

    numbers = study_numbers(sweep, target).where(where or [])
    words = labels_of(label or [])
    if x in AXES:
        if line is not None:
            raise UserError(f"means nothing with --x {x}, where each point of the grid has a line", "--line")
        figure = along_runs(SweepView.read(sweep), numbers, x, y, words)
    else:
        figure = over_key(numbers, x, line, y, words)
    typer.echo(str(write_figure(figure, out or sweep / f"{y}.pdf")))


def labels_of(texts: list[str]) -> dict[str, str]:
    """`NAME=TEXT` each.

    Raises:
        UserError: one has no equals sign.
    """
    from h2fdp.errors import UserError

    for text in texts:
        if "=" not in text:
            raise UserError(f"expected NAME=TEXT, found {text}", "--label")
    return {name.strip(): text for name, _, text in (each.partition("=") for each in texts)}


def tune_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The search's directory.", show_default="tunes/<name>")] = None,
    data_root: DataRoot = None,
    jobs: Jobs = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another search in --out.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search the ranges under `tune:` for the best values; repeat the command to continue."""
    from h2fdp.sweeps.study import SharedInputs
    from h2fdp.tuning.plan import read_plan
    from h2fdp.tuning.results import Tuned
    from h2fdp.tuning.search import conduct

    shared = SharedInputs()
    plan = read_plan(file, settings or [], shared)
    directory = out or plan.directory
    for sentence in plan.price.beforehand():
        print_text(f"note: {sentence}", error=True)
    with (
        interruptible() as interrupt,
        watched(interrupt, data_root, jobs, overwrite=overwrite, quiet=quiet) as options,
    ):
        searched = conduct(plan, directory, shared, options)
    tuned, finished = Tuned(directory), searched.finished
    if as_json:
        print_json(_search_as_json(tuned, finished))
    else:
        _show_search(tuned, finished, plan)
    for number, crash in searched.crashes.items():
        print(f"trial {number} failed: {crash.reason} (see {tuned.directory / 'failures'})", file=sys.stderr)
    if not finished:
        print("stopped: run the same command to continue", file=sys.stderr)
        raise typer.Exit(1 if searched.crashes else interrupt.exit_code)


def _search_as_json(tuned: Tuned, finished: bool) -> dict[str, Any]:
    states = tuned.trials["state"].value_counts().to_dict()
    return {
        "directory": str(tuned.directory),
        "finished": finished,
        "trials": states,
        "best": tuned.best,
        "front": tuned.front,
        "price": tuned.price,
    }


def _show_search(tuned: Tuned, finished: bool, plan: TunePlan) -> None:
    """The best trials, the best file, and what the search reveals."""
    trials = tuned.trials.sort_values("validation_accuracy", ascending=False, kind="stable")
    done = trials[trials["state"] == "done"]
    columns = ["trial", "validation_accuracy", "joules", "seconds", *plan.space.keys]
    rows: list[Any] = done.head(_MOST_TRIALS)[columns].to_dict("records")
    if rows:
        print_table(rows, title="the best trials, by accuracy on validation records")
    counts = ", ".join(f"{count} {state}" for state, count in trials["state"].value_counts().items())
    drawn = "" if plan.price.law is None else f" (the number is {plan.price.drawn_number})"
    facts: dict[str, Any] = {"trials": f"{counts or 'none'}{drawn}"}
    if finished and tuned.best is not None:
        facts |= {"best": f"trial {tuned.best['trial']}", "run it": f"h2fdp run {tuned.file}"}
        if len(tuned.front) > 1:
            facts["front"] = f"{len(tuned.front)} trials, each with its file in {tuned.directory / 'front'}"
    print_facts(facts | {"directory": tuned.directory})
    for sentence in tuned.price if finished else ():
        print_text(f"note: {sentence}")
