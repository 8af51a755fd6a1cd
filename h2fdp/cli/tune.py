"""`h2fdp tune`: the search of a file's `tune:` section."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.session import Jobs, Quiet, interruptible, watched
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
    from h2fdp.tuning import Tuned
    from h2fdp.tuning.plan import TunePlan

_MOST_ROWS = 10


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
    from h2fdp.tuning.api import Tuned
    from h2fdp.tuning.plan import read_plan
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
        print_json(_as_json(tuned, finished))
    else:
        _show(tuned, finished, plan)
    for number, crash in searched.crashes.items():
        print(f"trial {number} failed: {crash.reason} (see {tuned.directory / 'failures'})", file=sys.stderr)
    if not finished:
        print("stopped: run the same command to continue", file=sys.stderr)
        raise typer.Exit(1 if searched.crashes else interrupt.exit_code)


def _as_json(tuned: Tuned, finished: bool) -> dict[str, Any]:
    states = tuned.trials["state"].value_counts().to_dict()
    return {
        "directory": str(tuned.directory),
        "finished": finished,
        "trials": states,
        "best": tuned.best,
        "front": tuned.front,
        "price": tuned.price,
    }


def _show(tuned: Tuned, finished: bool, plan: TunePlan) -> None:
    """The best trials, the best file, and what the search reveals."""
    trials = tuned.trials.sort_values("validation_accuracy", ascending=False, kind="stable")
    done = trials[trials["state"] == "done"]
    columns = ["trial", "validation_accuracy", "joules", "seconds", *plan.space.keys]
    rows: list[Any] = done.head(_MOST_ROWS)[columns].to_dict("records")
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
