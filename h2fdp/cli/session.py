"""Runs watched from the terminal: progress, Ctrl-C and SIGTERM, the end, and how to continue what stopped.

The first signal stops the run after the interval, the second at once.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.progress import Target, progress, sweep_progress
from h2fdp.cli.tables import print_facts, print_json
from h2fdp.wording import counted

if TYPE_CHECKING:
    from h2fdp.sweeps.pool import WorkOptions


Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs in parallel; with 1, one after another in this process.", show_default="one for each CPU"
    ),
]
OverwriteRuns = Annotated[bool, typer.Option("--overwrite", help="Repeat the runs that have changed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]


@contextmanager
def watched(
    interrupt: Interrupt, data_root: Path | None, jobs: int | None, *, overwrite: bool, quiet: bool
) -> Iterator[WorkOptions]:
    """Options of work that shows its progress here and stops when the user asks."""
    from h2fdp.sweeps.pool import WorkOptions

    with sweep_progress(quiet=quiet) as watcher:
        # `listen` again once Ray is up, which takes SIGTERM for itself
        yield WorkOptions(data_root, jobs, overwrite, watcher, interrupt.listen, interrupt.asked)


_OF_PROBABILITIES = ("cross-entropy", "label-smoothing")  # losses that are log(classes) where all are equally likely
_DIVERGED = 10.0  # losses of a guess
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether a run was asked to stop, and the exit code that follows from it.

    Ctrl-C is 130, SIGTERM (a batch system's or a container's) 143: 128 and the signal's number, as shells have it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def asked(self) -> bool:
        """Whether the run is to stop after this interval."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a process that stopped for it."""
        return 128 + (self.signal or signal.SIGINT)

    def listen(self) -> None:
        """Take the signals; again after libraries that take them for themselves were started."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        again = "Ctrl-C again" if number == signal.SIGINT else "SIGTERM again"
        with suppress(OSError):  # sys.stderr refuses to be entered by a signal that comes while it writes
            os.write(2, f"stopping after this interval ({again} to stop at once)\n".encode())


@contextmanager
def interruptible(go_on: str = "run the same command to continue") -> Iterator[Interrupt]:
    """Signals ask the block to stop; a second one ends the command, and says how to go on."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    interrupt = Interrupt()
    interrupt.listen()
    try:
        yield interrupt
    except KeyboardInterrupt:
        print(f"stopped at once; {go_on}", file=sys.stderr)
        raise typer.Exit(interrupt.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if TYPE_CHECKING:
    from h2fdp.experiment.sections import ExperimentFile
    from h2fdp.run import Run
    from h2fdp.run.recorders import RunCallbacks


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
        again: the command that runs the same again.
    """
    from h2fdp.run.recorders import RunCallbacks

    with (
        interruptible(_how_to_go_on(directory)) as interrupt,
        progress(intervals, quiet=quiet, verbose=verbose, target=_target(config)) as show,
    ):
        # `listen` again once Ray is up, which takes SIGTERM for itself
        done = run(RunCallbacks(interrupt.listen, show, interrupt.asked))
    summary = done.summary
    if as_json:
        print_json(summary | {"directory": str(directory)})
    else:
        show_result(summary, directory, learned(summary, config, again))
    if summary["state"] == "interrupted":
        print(f"stopped after interval {summary['intervals']}; {_how_to_go_on(directory)}", file=sys.stderr)
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
    lowest = _trust(summary["trusted_edges"], summary["secure_sum_edges"])
    above = [f"{tier['edges']} ({_trust(tier['trusted'], tier['secure_sum'])})" for tier in summary["upper_tiers"]]
    found = f"{counted(summary['devices'], 'device')} under {counted(summary['edges'], 'edge server')} ({lowest})"
    return ", under ".join([found, *above])


def _trust(trusted: int, secure_sums: int) -> str:
    return f"{trusted} trusted" + (f", {secure_sums} with secure sums" if secure_sums else "")


def learned(summary: dict[str, Any], config: ExperimentFile, again: str) -> dict[str, str]:
    """Lines about a run that did not learn: whether its steps are to blame, and how to see whether its noise is."""
    found: dict[str, str] = {}
    loss, since, classes = summary["loss"], summary["not_finite_from"], summary["classes"]
    smaller = "; a smaller training.step_size may help"
    if since is not None:
        found["not finite"] = f"the test loss, since interval {since}: the accuracy says nothing{smaller}"
    elif loss is not None and config.training.loss.name in _OF_PROBABILITIES:
        guess = math.log(classes)
        if loss > _DIVERGED * guess:
            found["diverged"] = f"the test loss is {loss / guess:,.0f} times that of a guess, {guess:.3g}{smaller}"
    chance, accuracy = 1 / classes, summary["accuracy"]
    little = min(2 * chance, chance + (1 - chance) / 9)  # of two classes the second, 0.56
    if summary["noise_std"] and accuracy is not None and accuracy < little:
        other = "fedavg" if config.method.topology == "star" else "hfl"
        # A file may state that its noise is accounted for, which means nothing without noise and is refused there.
        calibrated = " --set privacy.calibration=paper" if config.privacy.calibration == "accounted" else ""
        found["without noise"] = f"{again} --set method={other}{calibrated}"
    return found


def show_result(summary: dict[str, Any], directory: Path, learned: Mapping[str, str] | None = None) -> None:
    """The table that a run ends with.

    Args:
        learned: see `learned`.
    """
    from h2fdp.privacy.places import ADDED_BY

    facts: dict[str, Any] = {
        "method": f"{summary['method']}, seed {summary['seed']}, {summary['backend']}",
        "network": _network(summary),
        "intervals": summary["intervals"],
        "test accuracy": summary["accuracy"],
        **({"mean of the last 20": summary["accuracy_mean_last_20"]} if summary["intervals"] > 20 else {}),
        "test loss": summary["loss"],
        **(learned or {}),
    }
    for kind in dict.fromkeys(each["kind"] for each in summary["noise_std"]):
        levels = [
            f"{_range(each['smallest'], each['largest'])} by {ADDED_BY[each['added_by']]}"
            for each in summary["noise_std"]
            if each["kind"] == kind
        ]
        if levels:
            facts[f"{kind} noise"] = "; ".join(levels)
    if summary.get("accountant") is None:
        facts["epsilon"] = "none (no noise)"
    elif summary["privacy"] and summary["privacy"]["worst"]:
        facts["epsilon"] = _epsilons(summary["privacy"], summary["accountant"])
        for note in summary["privacy"]["notes"]:
            name, _, text = note.partition(": ")
            facts[name] = text
    if summary["leaking"]:
        facts["leaking"] = "raw gradients were sent to the cloud (control.estimates: oracle), so no epsilon is reported"
    facts["energy"] = f"{summary['energy_j']:.4g} J"
    facts["simulated time"] = f"{summary['clock_s']:.4g} s from start to end, devices at the same time"
    facts["delay"] = f"{summary['delay_s']:.4g} s, the times of all devices added up"
    if summary["fresh_from"]:
        facts["drawn afresh"] = (
            f"from interval {', '.join(map(str, summary['fresh_from']))} on, after a resume elsewhere"
        )
    if summary["budget_spent_by"]:
        facts["stopped early"] = (
            f"interval {summary['intervals'] + 1} would exceed the budget of the observer {summary['budget_spent_by']}"
        )
    if summary["state"].endswith(" reached"):
        facts["stopped early"] = f"after interval {summary['intervals']}: {summary['state']}"
    facts["wall time"] = f"{summary['wall_s']:.1f} s"
    facts["run directory"] = directory
    print_facts(facts)


def _epsilons(privacy: dict[str, Any], accountant: str) -> str:
    """What each observer's account is, by which accountant, and whether it confirms the target, or else the claim."""
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
