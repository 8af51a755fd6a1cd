"""Resume a run that ended early: `h2fdp resume RUN`.

A checkpoint lies behind the last interval that was started, so some intervals are done again. In an environment of the
same digest they come out the same, to the bit: nothing new is released, and the ledger's rows stand. In any other they
would not, and the same noise on another update could be subtracted: so everything is drawn afresh, and both what was
released then and what is released now count.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from h2fdp.errors import UserError
from h2fdp.records import JsonLines, Mark, RunDirectory, about, check_start, logged_to, noise_key, read_summary
from h2fdp.records.checkpoint import load_checkpoint
from h2fdp.records.directory import SUMMARY, reopen
from h2fdp.run.api import Experiment
from h2fdp.run.identity import OWN_CODE, name_of_attempt, run_digest
from h2fdp.run.loop import carry_out, full_disk_reported
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.recorders import HostsDiffer, OnInterval, RunCallbacks, RunState
from h2fdp.run.result import FINISHED, Run
from h2fdp.run.setup import RunSetup
from h2fdp.run.tracking import shown

_log = logging.getLogger(__name__)


def resume(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    data: Any = None,
    test_data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    settings: Sequence[str] = (),
    on_interval: OnInterval | None = None,
    fresh_noise: bool = False,
    progress: bool | None = None,
) -> Run:
    """Go on with a run that ended early, and return what was recorded; a run that is done is returned as it is.

    Args:
        run: its directory.
        data, test_data, model: a user's own parts, if it had any.
        progress: show how far it is; null: in notebooks and on terminals.
        settings: of `runtime` and `tracking`, as `--set` takes them (`runtime.hosts=2`).
        fresh_noise: where the intervals to be repeated would not come out the same, draw them afresh; what was released
            before counts too. Also goes on where code of your own has changed.

    Raises:
        UserError: no run directory; another process is writing to it; a part is missing, or is not the one that the run
            began with; a file of it, or code of your own, was changed; it would draw fresh noise, and was not
            allowed to.
    """
    experiment = Experiment.of_run(run, settings, data=data, test_data=test_data, model=model)
    with shown(experiment.config.training.intervals, progress, on_interval) as watcher:
        return resume_run(experiment, Path(run), watcher, data_root=data_root, fresh_noise=fresh_noise)


def resume_run(
    experiment: Experiment,
    path: Path,
    watcher: RunCallbacks | None = None,
    *,
    data_root: str | Path | None = None,
    verbose: bool = False,
    fresh_noise: bool = False,
    keeps_to_plan: bool = False,
) -> Run:
    """Continue the run of an `Experiment.of_run`; see `resume` and `start_run` for the rest.

    Args:
        keeps_to_plan: under fresh draws, release no more of any device than was planned, though epsilon be unspent.
    """
    if is_finished(path):
        return Run(path)
    with reopen(path) as directory, logged_to(directory.log, verbose=verbose), full_disk_reported(directory):
        if is_finished(path):  # by another process, until a moment ago
            return Run(path)
        setup = experiment.prepare(data_root)
        setup = setup.keyed(noise_key.stored(directory))  # a new key, where that is lost, makes all draws fresh

        def go_on(repeatable: bool) -> None:
            run, state = _continuation(setup, directory, fresh_noise, repeatable)
            if run.has_noise_key and noise_key.stored(directory) is None:
                noise_key.store(directory, run.noise_key)
            if keeps_to_plan and state.fresh:  # the same draws release what was planned anyway
                state.accounts.keep_to_plan()
            carry_out(run, directory, state, watcher or RunCallbacks())

        try:
            go_on(repeatable=True)
        except HostsDiffer:
            go_on(repeatable=False)
    return Run(path)


def is_finished(path: Path) -> bool:
    """Whether a run is complete; one whose summary is damaged is not known to be."""
    try:
        return (read_summary(path) or {}).get("state") in FINISHED
    except UserError as error:
        _log.warning("damaged", extra=about(file=SUMMARY, note=f"{error}; it is ignored"))
        return False


def _continuation(
    setup: RunSetup, directory: RunDirectory, fresh_noise: bool, repeatable: bool
) -> tuple[RunSetup, RunState]:
    """The run as it was left, with the random streams that it may continue with."""
    with JsonLines(directory.ledger) as ledger:  # which ends a line that was being written
        mark = ledger.mark()
    stored = load_checkpoint(directory.checkpoints, _tell_of_damage)
    digest = run_digest(setup, directory)
    if not repeatable:  # hosts compute otherwise than this process, which the digest does not know
        digest |= {"hardware": secrets.token_hex(16)}
    if stored is None:
        state = RunState.begun(setup)
        if not mark.bytes:  # nothing was released
            _log.info("resume", extra=about(interval=1))
            return setup, state
        why = "no checkpoint is left"
    else:
        if (found := stored["nodes"]["cloud"]["model"].numel()) != setup.initial.numel():
            text = f"the checkpoint's model has {found} parameters, this one {setup.initial.numel()}"
            raise UserError(f"{text}; expected the model that the run started with", str(directory.path), "model")
        check_start(directory.ledger, Mark(**stored["ledger"]))
        # A row behind the checkpoint that no run wrote raises here; that it is this run's is seen when it comes again.
        for _ in releases_of_ledger(directory.ledger, setup.sizes, stored["ledger"]["bytes"]):
            pass
        state = RunState.restored(setup, stored, directory)
        differing = [part for part in digest if digest[part] != stored["digest"].get(part, "")]
        if "noise key" in differing:  # it is the key of the data's digest, too: that says nothing under another
            differing.remove("data")
        if OWN_CODE in differing and not fresh_noise:
            text = "your own code changed since the run began, so its rest would be of another experiment"
            right = "expected the code as it was, or --fresh-noise (fresh_noise=True) to go on with the new code"
            raise UserError(f"{text}; {right}", str(directory.path))
        if not differing or setup.noise is None:  # without noise there is nothing that a second time would reveal
            _log.info("resume", extra=about(interval=len(state.rows) + 1, differing=differing))
            return setup.drawing(state.attempt), state
        why = f"the run's {', '.join(differing)} changed since it began"
        if "versions" in differing:
            why += f" (from {stored['digest']['versions']} to {digest['versions']})"
        if not repeatable:
            why += "; its hosts do not all compute like this process"
    lost = mark.bytes > (0 if state.ledger is None else state.ledger.bytes)
    _check_allowed(setup, state, directory, why, lost=lost, fresh_noise=fresh_noise)
    return _afresh(setup, state, directory, name_of_attempt(digest, stored, mark.digest), why)


def _check_allowed(
    setup: RunSetup, state: RunState, directory: RunDirectory, why: str, *, lost: bool, fresh_noise: bool
) -> None:
    """Raise for a continuation that would release intervals twice, where that is not possible or not asked for.

    Args:
        lost: intervals were released since the checkpoint.
        fresh_noise: the user asked to release them again.
    """
    first = len(state.rows) + 1
    if lost and _only_counted(setup):
        text = (
            f"{why}, so intervals from {first} on, which were released before, would be released a second time; "
            f"nothing but its number of local steps (R_c) keeps this run to its epsilon, and repeated ones would "
            f"overspend it; expected the same environment, or a new run"
        )
        raise UserError(text, str(directory.path))
    if setup.noise is not None and lost and not fresh_noise:
        text = (
            f"{why}, so intervals from {first} on would get fresh noise, and what was released of them before would "
            f"count too; expected the same environment, or --fresh-noise (fresh_noise=True) to spend that"
        )
        if setup.config.privacy.calibration == "accounted":
            text += "; the run then ends before its account would exceed epsilon, which may be before its last interval"
        raise UserError(text, str(directory.path))


def _only_counted(setup: RunSetup) -> bool:
    """Whether a number of local steps is all that keeps a run to its epsilon, and neither its account nor a filter."""
    schedule = setup.traits
    by_filter = schedule.ends_by_account or not schedule.keeps_to_iterations
    return setup.iterations is not None and setup.target is None and not by_filter


def _afresh(
    setup: RunSetup, state: RunState, directory: RunDirectory, attempt: str, why: str
) -> tuple[RunSetup, RunState]:
    """Use new random streams from the next interval on; what was released of it before still counts."""
    first = len(state.rows) + 1
    begin = 0 if state.ledger is None else state.ledger.bytes
    state.accounts.enter_lost(releases_of_ledger(directory.ledger, setup.sizes, begin))
    state.ledger, state.attempt, state.fresh = None, attempt, [*state.fresh, first]
    note = f"{why}: noise and batches are drawn afresh from interval {first} on; earlier releases still count"
    _log.warning("resume afresh", extra=about(interval=first, note=note))
    return setup.drawing(attempt), state


def _tell_of_damage(path: Path) -> None:
    _log.warning("damaged", extra=about(file=path.name, note=f"{path} is damaged and ignored"))
