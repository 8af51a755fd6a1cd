"""`h2fdp sweep` and `tune`: the grid of a file, the search of a file; how far they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.runs import HALF
from h2fdp.cli.terminal import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Interrupt,
    Jobs,
    OverwriteRuns,
    Quiet,
    Settings,
    interruptible,
    print_facts,
    print_json,
    print_problem,
    print_table,
    print_text,
)
from h2fdp.wording import SCORES, note, progress_bar

if TYPE_CHECKING:
    from h2fdp.sweeps import Sweep
    from h2fdp.sweeps.pool import WorkOptions
    from h2fdp.sweeps.task import Outcome
    from h2fdp.tuning import Tuned
    from h2fdp.tuning.plan import TunePlan

_MOST_ROWS, _MOST_TRIALS = 60, 10


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
    from h2fdp.sweeps.plan import SharedInputs, read_sweep

    shared = SharedInputs(data_root)
    study = read_sweep(file, settings or [], shared)
    directory = out or study.directory
    with interruptible() as interrupt, watched(interrupt, jobs, overwrite=overwrite, quiet=quiet) as options:
        outcomes = conduct(study, directory, shared, options)
    sweep = Sweep(directory, tuple(planned.point.name for planned in study.runs))
    finished = len(sweep.runs)
    if as_json:
        print_json(_as_json(sweep, finished))
    else:
        _show(sweep, finished)
    if interrupt.asked() and finished < len(sweep.names):
        print_problem(f"stopped: {finished} of {len(sweep.names)} runs are done; run the same command to continue")
        raise typer.Exit(interrupt.exit_code)
    _exit_for(outcomes, sweep)


def _exit_for(outcomes: dict[str, Outcome], sweep: Sweep) -> None:
    """Report failures, with exit code 2 where all are the user's mistakes, else 1."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.error}
    for name, outcome in failed.items():
        reason = outcome.error.strip() if outcome.mistake else outcome.error.strip().rpartition("\n")[2]
        print_problem(f"{name} failed: {reason}")
    if failed:
        print_problem(f"{len(failed)} of {len(sweep.names)} runs failed: see {sweep.directory / 'failures'}")
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
        from h2fdp.reports.sweep_numbers import sweep_numbers

        numbers = sweep_numbers(sweep.directory)
        rows = paper_table(numbers).texts()
        print_table(rows[:_MOST_ROWS], title=f"means over seeds, {HALF}")
        if numbers.footnote:
            note(numbers.footnote)
        if len(rows) > _MOST_ROWS:
            typer.echo(f"and {len(rows) - _MOST_ROWS} more (summary.parquet has them all)")
        for name, since in _not_finite(sweep):
            typer.echo(f"not finite: the test loss of {name} since interval {since}; its scores say nothing")
    print_facts({"runs": f"{finished} of {len(sweep.names)} done", "sweep directory": sweep.directory})


def _not_finite(sweep: Sweep) -> Iterator[tuple[str, int]]:
    """Runs that ended without a finite test loss, and since which interval."""
    from h2fdp.records.directory import read_summary

    for name in sweep.names:
        summary = read_summary(sweep.directory / "runs" / name) or {}
        if since := summary.get("not_finite_from"):
            yield name, since


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
    from h2fdp.sweeps.plan import SharedInputs
    from h2fdp.tuning.plan import read_plan
    from h2fdp.tuning.results import Tuned
    from h2fdp.tuning.search import conduct

    plan = read_plan(file, settings or [], SharedInputs(data_root))
    directory = out or plan.directory
    for sentence in plan.price.beforehand():
        note(sentence)
    with interruptible() as interrupt, watched(interrupt, jobs, overwrite=overwrite, quiet=quiet) as options:
        searched = conduct(plan, directory, options)
    tuned, finished = Tuned(directory), searched.finished
    if as_json:
        trials = tuned.trials["state"].value_counts().to_dict()
        told = {name: getattr(tuned, name) for name in ("best", "front", "price")}
        print_json({"directory": str(tuned.directory), "finished": finished, "trials": trials, **told})
    else:
        _show_search(tuned, finished, plan)
    for number, crash in searched.crashes.items():
        print_problem(f"trial {number} failed: {crash.reason} (see {tuned.directory / 'failures'})")
    if not finished:
        print_problem("stopped: run the same command to continue")
        raise typer.Exit(1 if searched.crashes else interrupt.exit_code)


def _show_search(tuned: Tuned, finished: bool, plan: TunePlan) -> None:
    """The best trials, the best file, and what the search reveals."""
    measure = f"validation_{plan.measure}"
    trials = tuned.trials.sort_values(measure, ascending=SCORES[plan.measure].falls, kind="stable")
    done = trials[trials["state"] == "done"]
    columns = ["trial", measure, "joules", "seconds", *plan.space.keys]
    rows: list[Any] = done.head(_MOST_TRIALS)[columns].rename(columns={measure: plan.measure}).to_dict("records")
    if rows:
        print_table(rows, title=f"the best trials, by {plan.measure} on validation records")
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


@contextmanager
def watched(interrupt: Interrupt, jobs: int | None, *, overwrite: bool, quiet: bool) -> Iterator[WorkOptions]:
    """Options of work that shows its progress on standard error, as results can be piped, and stops on request."""
    from h2fdp.sweeps.api import SweepProgress
    from h2fdp.sweeps.pool import Stopped, WorkOptions

    try:
        with progress_bar(1, not quiet and sys.stderr.isatty(), stays=False) as bar:
            watcher = SweepProgress(bar, None if quiet else partial(bar.write, file=sys.stderr))
            # `listen` again once Ray is up, which takes SIGTERM for itself
            yield WorkOptions(jobs, overwrite, watcher, interrupt.listen, interrupt.asked)
    except Stopped as stopped:
        print_problem(str(stopped))
        raise typer.Exit(interrupt.exit_code) from None
