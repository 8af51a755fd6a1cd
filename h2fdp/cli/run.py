"""`h2fdp run` and `h2fdp resume`: one experiment from a file, and a run that ended early; how it went."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.terminal import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Quiet,
    Seed,
    Settings,
    interruptible,
    print_facts,
    print_json,
    print_problem,
    progress,
)
from h2fdp.wording import SCORES, Target, counted, judged_by, note, wrapped

if TYPE_CHECKING:
    from h2fdp.experiment.sections import ExperimentFile
    from h2fdp.run import Experiment, Run
    from h2fdp.run.recorders import RunCallbacks

_OF_PROBABILITIES = ("cross-entropy", "label-smoothing")  # losses that are log(classes) where all are equally likely
_DIVERGED = 10.0  # losses of a guess


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
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print a line for each interval.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment and record it in a run directory."""
    from h2fdp.records.directory import new_directory
    from h2fdp.run import Experiment
    from h2fdp.run.loop import start_run
    from h2fdp.run.prelude import what_noise_hides

    experiment = Experiment.from_file(file, settings or [], seed)
    if experiment.config.sweep:
        note("`run` runs the experiment itself; the values under `sweep:` are not used")
    if experiment.config.tune:
        note("`run` runs the experiment itself; `h2fdp tune` searches what is under `tune:`")
    if dry_run:
        _show_plan(experiment, data_root, as_json)
        return
    with new_directory(out, experiment.config.name, overwrite) as directory:  # before the data are loaded
        setup = experiment.prepare(data_root)
        control, intervals = setup.config.control, setup.config.training.intervals
        planned = setup.schedule().planned if control.enabled and control.turns is not None else None
        if not quiet and not as_json:
            for line in setup.chosen:
                typer.echo(line)
            for text in what_noise_hides(setup):
                note(text)
            if planned is not None:
                typer.echo(f"planned: {planned} intervals")
        stated = [word for each in settings or () if not re.match(r"method[.=]", each) for word in ("--set", each)]
        with experiment.mistakes_placed():
            watch(
                lambda watcher: start_run(setup, directory, watcher, overwrite=overwrite, verbose=verbose),
                directory,
                setup.config,
                intervals=planned or intervals,
                again=shlex.join(["h2fdp", "run", str(file), *stated]),
                quiet=quiet,
                verbose=verbose,
                as_json=as_json,
            )


def _show_plan(experiment: Experiment, data_root: Path | None, as_json: bool) -> None:
    from h2fdp.cli.privacy import print_accounts, print_noises
    from h2fdp.run.prelude import what_noise_hides
    from h2fdp.run.preview import LEAKS, costs_in_words, estimate, without_effect

    setup = experiment.prepare(data_root)
    for text in (*without_effect(setup), *what_noise_hides(setup)):
        note(text)
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
        typer.echo(f"\n{wrapped(f'no epsilon: {LEAKS}')}\n")
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
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print a line for each interval, and the log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped, killed or ran out of disk space, from its last checkpoint."""
    from h2fdp.run import Experiment
    from h2fdp.run.loop import resume_run
    from h2fdp.run.result import is_finished

    experiment = Experiment.of_run(directory, settings or [])
    if is_finished(directory):
        note(f"{directory} has nothing left to do")

    def resumed(watcher: RunCallbacks) -> Run:
        prepare = partial(experiment.prepare, data_root)
        return resume_run(prepare, directory, watcher, verbose=verbose, fresh_noise=fresh_noise)

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


def watch(
    run: Callable[[RunCallbacks], Run],
    directory: Path,
    config: ExperimentFile,
    *,
    intervals: int,
    again: str,
    quiet: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Carry out a run and show it.

    Args:
        run: carries it out under a watcher.
        config: of the run, its calibration settled.
        intervals: that the run is expected to have.
        again: the command that runs the same again, but for its method.
    """
    from h2fdp.run.recorders import RunCallbacks

    target = _target(config)
    with (
        interruptible(_how_to_go_on(directory)) as interrupt,
        progress(intervals, quiet=quiet, verbose=verbose, target=target) as show,
    ):
        # `listen` again once Ray is up, which takes SIGTERM for itself
        done = run(RunCallbacks(interrupt.listen, show, interrupt.asked))
    summary = done.summary
    if as_json:
        print_json(summary | {"directory": str(directory)})
    else:
        show_result(summary, directory, learned(summary, config, again))
    if summary["state"] == "interrupted":
        print_problem(f"stopped after interval {summary['intervals']}; {_how_to_go_on(directory)}")
        raise typer.Exit(interrupt.exit_code)
    if not as_json:
        typer.echo(f"next: h2fdp report {shlex.quote(str(directory))}")


def _target(config: ExperimentFile) -> Target | None:
    from h2fdp.privacy import OBSERVERS

    privacy = config.privacy
    stated = tuple(privacy.target_observers)
    watched = None if stated == OBSERVERS else stated  # the default stands for all there are
    return Target(privacy.epsilon, watched) if privacy.calibration == "accounted" else None


def _how_to_go_on(directory: Path) -> str:
    return f"continue with: h2fdp resume {shlex.quote(str(directory))}"


def _network(summary: dict[str, Any]) -> str:
    """Devices, edge servers of every tier, and how many of each are trusted."""
    lowest = _trust(summary["trusted_edges"], summary["secure_sum_edges"], summary.get("relay_edges", 0))
    tiers = summary["upper_tiers"]
    above = [f"{each['edges']} ({_trust(*map(each.get, ('trusted', 'secure_sum', 'relay')))})" for each in tiers]
    found = f"{counted(summary['devices'], 'device')} under {counted(summary['edges'], 'edge server')} ({lowest})"
    return ", under ".join([found, *above])


def _trust(trusted: int, secure_sums: int, relays: int | None) -> str:
    sums = f", {secure_sums} with secure sums" if secure_sums else ""
    return f"{trusted} trusted{sums}" + (f", {counted(relays, 'relay')}" if relays else "")


def learned(summary: dict[str, Any], config: ExperimentFile, again: str) -> dict[str, str]:
    """Lines about a run that did not learn: whether its steps are to blame, and how to see whether its noise is."""
    found: dict[str, str] = {}
    loss, since = summary["loss"], summary["not_finite_from"]
    task, classes = summary.get("target", {}).get("task"), summary["classes"]
    smaller = "; a smaller training.step_size may help"
    if columns := summary.get("columns_without_ranges"):
        smaller = f"; data.ranges of {', '.join(columns)} may help: these inputs are not scaled"
    if since is not None:
        found["not finite"] = f"the test loss, since interval {since}: the scores say nothing{smaller}"
    elif loss is not None and (guess := _guess(config.training.loss.name, classes)) and loss > _DIVERGED * guess:
        found["diverged"] = f"the test loss is {loss / guess:,.0f} times that of a guess, {guess:.3g}{smaller}"
    score = "r2" if task == "regression" else "accuracy"
    chance = 1 / (2 if task == "multilabel" else max(2, classes))
    little = 1 / 9 if score == "r2" else min(2 * chance, chance + (1 - chance) / 9)  # of two classes the second, 0.56
    if summary["noise_std"] and summary.get(score) is not None and summary[score] < little:
        other = "fedavg" if config.method.topology == "star" else "hfl"
        # A file may state that its noise is accounted for, which means nothing without noise and is refused there.
        calibrated = " --set privacy.calibration=paper" if config.privacy.calibration == "accounted" else ""
        found["without noise"] = f"{again} --set method={other}{calibrated}"
    return found


def _guess(loss: str, classes: int) -> float | None:
    """The loss of a model that has learned nothing, None where no rule gives it; of real values, by mid-range."""
    known = {"squared": 1.0, "sigmoid-cross-entropy": math.log(2)} | dict.fromkeys(_OF_PROBABILITIES, math.log(classes))
    return known.get(loss)


def show_result(summary: dict[str, Any], directory: Path, learned: Mapping[str, str] | None = None) -> None:
    """The table that a run ends with.

    Args:
        learned: see `learned`.
    """
    from h2fdp.costs.kinds import extras_in_words
    from h2fdp.privacy.own_targets import facts_of
    from h2fdp.privacy.places import ADDED_BY

    judged = judged_by(summary)
    known = {name: score for name, score in SCORES.items() if summary.get(name) is not None}
    facts: dict[str, Any] = {
        "method": f"{summary['method']}, seed {summary['seed']}, {summary['backend']}",
        "network": _network(summary),
        "intervals": summary["intervals"],
        **({score.name: summary[name] for name, score in known.items()} or {"test accuracy": None}),
        **({"mean of the last 20": summary[f"{judged.column}_mean_last_20"]} if summary["intervals"] > 20 else {}),
        "test loss": summary["loss"],
        **(learned or {}),
    }
    for kind in dict.fromkeys(each["kind"] for each in summary["noise_std"]):
        facts[f"{kind} noise"] = "; ".join(
            f"{_range(each['smallest'], each['largest'])} by {ADDED_BY[each['added_by']]}"
            for each in summary["noise_std"]
            if each["kind"] == kind
        )
    if summary.get("accountant") is None:
        facts["epsilon"] = "none (no noise)"
    elif summary["privacy"] and summary["privacy"]["worst"]:
        facts["epsilon"] = _epsilons(summary["privacy"], summary["accountant"])
        facts |= facts_of(summary["privacy"].get("targets", ()))
        for each in summary["privacy"]["notes"]:
            name, _, text = each.partition(": ")
            facts[name] = text
    if summary["leaking"]:
        facts["leaking"] = "devices sent raw measurements to the cloud, so no epsilon is reported"
    facts["energy"] = f"{summary['energy_j']:.4g} J{extras_in_words(summary)}"
    facts["sent up"] = f"{summary['bytes'] / 1e6:.4g} MB by devices and edge servers"
    facts["simulated time"] = f"{summary['clock_s']:.4g} s from start to end, devices at the same time"
    facts["delay"] = f"{summary['delay_s']:.4g} s, the times of all devices added up"
    if summary["fresh_from"]:
        first = ", ".join(map(str, summary["fresh_from"]))
        facts["drawn afresh"] = f"from interval {first} on, after a resume elsewhere"
    if observer := summary["budget_spent_by"]:
        text = f"interval {summary['intervals'] + 1} would exceed the budget of the observer {observer}"
        facts["stopped early"] = text
    if summary["state"].endswith(" reached"):
        facts["stopped early"] = f"after interval {summary['intervals']}: {summary['state']}"
    facts["wall time"] = f"{summary['wall_s']:.1f} s"
    facts["run directory"] = directory
    print_facts(facts)


def _epsilons(privacy: dict[str, Any], accountant: str) -> str:
    """The account of each observer, by which accountant, and whether it confirms the target, or else the claim."""
    from h2fdp.privacy import observers_beside
    from h2fdp.privacy.places import UNTARGETED

    worst, target = privacy["worst"], privacy.get("target")
    by = accountant if all(accountant in each for each in worst.values()) else "pld"
    found = {name: math.inf if each[by] is None else each[by] for name, each in worst.items()}  # JSON has no infinity
    silent = privacy.get("silent", {})
    told = [
        f"{name} {found[name]:.3g}" if name in found else f"{name} none ({silent[name]})"
        for name in observers_beside([*found, *silent])
        if name in found or name in silent
    ]
    if target is not None:
        judged = {name: each["verdict"] for name, each in worst.items() if each["verdict"] != UNTARGETED}
        missed = [name for name, verdict in judged.items() if verdict != "met"]
        verdict = f"target {target:.4g} {'not met' if missed else 'met'}"
        verdict += f" for {', '.join(missed or judged)}" if missed or len(judged) < len(worst) else ""
    elif privacy["claimed"] is None:
        verdict = "nothing is claimed"
    else:
        confirmed = all(epsilon <= privacy["claimed"] for epsilon in found.values())
        hint = "" if confirmed else ", not confirmed by this account: see h2fdp privacy calibrate"
        verdict = f"claimed {privacy['claimed']:.4g}{hint}"
    return f"{', '.join(told)} (delta {privacy['delta']:g}, by {by}); {verdict}"


def _range(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
