"""`h2fdp run`: one experiment from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.interrupt import stop_on_interrupt
from h2fdp.cli.options import AsJson, DataRoot, ExperimentPath, Seed, Settings
from h2fdp.cli.progress import progress
from h2fdp.cli.tables import print_facts, print_json, print_table

if TYPE_CHECKING:
    from h2fdp.experiment import Experiment

INTERRUPTED = 130
_ADDERS = {"device": "each device", "edge": "the edge server"}


def run_command(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="The run directory [default: runs/<name>-<time>].")] = None,
    data_root: DataRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost; run nothing.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line for each interval.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment and leave everything it recorded in a run directory."""
    from h2fdp.experiment import Experiment

    experiment = Experiment.from_file(file, settings or [], seed)
    if experiment.config.sweep:
        print("note: `run` runs the experiment itself; the values under `sweep:` are not used", file=sys.stderr)
    if dry_run:
        _show_plan(experiment, data_root, as_json)
    else:
        _run(experiment, out, data_root, overwrite, quiet, verbose, as_json)


def _run(
    experiment: Experiment,
    out: Path | None,
    data_root: Path | None,
    overwrite: bool,
    quiet: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    from h2fdp.experiment.api import default_directory
    from h2fdp.experiment.run import start_run

    preparation = experiment.prepare(data_root)
    directory = out or default_directory(experiment.config)
    with (
        stop_on_interrupt() as stopped,
        progress(experiment.config.training.intervals, quiet=quiet, verbose=verbose) as display,
    ):
        run = start_run(
            preparation,
            directory,
            overwrite=overwrite,
            on_start=display.started,
            on_interval=display.update,
            stop=stopped,
        )
    summary = run.summary
    if as_json:
        print_json(summary | {"directory": str(directory)})
    else:
        _show_result(summary, directory)
    if summary["state"] == "interrupted":
        print(f"stopped after interval {summary['intervals']}; what was recorded is in {directory}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _show_result(summary: dict[str, Any], directory: Path) -> None:
    facts: dict[str, Any] = {
        "method": f"{summary['method']}, seed {summary['seed']}, {summary['backend']}",
        "network": f"{summary['devices']} devices under {summary['edges']} edge servers "
        f"({summary['trusted_edges']} trusted)",
        "intervals": summary["intervals"],
        "test accuracy": summary["accuracy"],
        "mean of the last 20": summary["accuracy_mean_last_20"],
        "test loss": summary["loss"],
    }
    for kind in ("local", "global"):
        levels = [
            f"{_range(each['smallest'], each['largest'])} by {_ADDERS[each['added_by']]}"
            for each in summary["noise_std"]
            if each["kind"] == kind
        ]
        if levels:
            facts[f"{kind} noise"] = "; ".join(levels)
    if summary["privacy"] and summary["privacy"]["worst"]:
        claimed, worst = summary["privacy"]["claimed"], summary["privacy"]["worst"]
        confirmed = claimed is not None and all(each["pld"] <= claimed for each in worst.values())
        hint = "" if confirmed else "; not confirmed by the account: see h2fdp privacy calibrate"
        facts["epsilon claimed"] = ("nothing" if claimed is None else f"{claimed:.4g}") + hint
        facts["epsilon accounted"] = ", ".join(f"{name} {each['pld']:.3g}" for name, each in worst.items()) + " (pld)"
    if summary["leaking"]:
        facts["leaking"] = "control.estimates: oracle; raw gradients went up, so no epsilon is said"
    facts["energy"] = f"{summary['energy_j']:.4g} J"
    facts["delay"] = f"{summary['delay_s']:.4g} s summed over devices; {summary['clock_s']:.4g} s on a simulated clock"
    if summary["budget_spent_by"]:
        facts["stopped early"] = (
            f"interval {summary['intervals'] + 1} would exceed the budget of the observer {summary['budget_spent_by']}"
        )
    facts["wall time"] = f"{summary['wall_s']:.1f} s"
    facts["run directory"] = directory
    print_facts(facts)


def _range(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"


def _show_plan(experiment: Experiment, data_root: Path | None, as_json: bool) -> None:
    from h2fdp.experiment.estimate import estimate

    plan = estimate(experiment.prepare(data_root))
    if as_json:
        print_json(plan)
        return
    print_facts({key: value for key, value in plan.items() if key != "noises"})
    if plan["noises"]:
        print_table(plan["noises"], title="noises of the first interval (standard deviations)")
