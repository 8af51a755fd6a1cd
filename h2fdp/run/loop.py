"""A run from start to end: plan, write the ledger, run the interval, evaluate, record - once for each interval.

And the rest of a run that ended early: `h2fdp resume RUN`. A checkpoint lies behind the last interval that was started,
so some intervals are done again. In an environment of the same digest they come out the same, to the bit: nothing new
is released, and the ledger's rows stand. In any other they would not, and the same noise on another update could be
subtracted: so everything is drawn afresh, and both what was released then and what is released now count. An interval
that comes out otherwise all the same, by something that no digest covers, is seen by its model before it is recorded.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from h2fdp.errors import UserError
from h2fdp.experiment.training_section import END_COLUMNS
from h2fdp.privacy import Release
from h2fdp.protocol import InProcessNodes, IntervalPlan
from h2fdp.records import noise_key
from h2fdp.records.checkpoint import Outcomes, load_checkpoint
from h2fdp.records.directory import RunDirectory, create, full_disk_reported, reopen
from h2fdp.records.json_lines import JsonLines, Mark, check_start, cut
from h2fdp.records.log import about, logged_to, lost_hosts
from h2fdp.run.forecast import budgets_of, noise_choice, planned_work
from h2fdp.run.identity import OWN, Digest, changes, name_of_attempt, run_digest
from h2fdp.run.live_accounts import BudgetSpent, LiveAccounts, Row
from h2fdp.run.model_scores import ModelScores
from h2fdp.run.prelude import after, with_prelude
from h2fdp.run.preview import notices
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.recorders import Checkpoints, Journal, Recorder, RunCallbacks, RunState, Unrepeatable, signal_step
from h2fdp.run.result import FINISHED, Run, is_finished, summary_of, write_inputs, write_results
from h2fdp.run.setup import RunSetup
from h2fdp.run.tracking import Sink, sinks_of
from h2fdp.runtime import chosen_backend, run_interval, start_hosts
from h2fdp.runtime.host import alike
from h2fdp.training.engine import compile_ahead
from h2fdp.wording import SCORES

End = str  # `done`, `interrupted`, or what `result.FINISHED` has; else `stopped` by a callback, or `failed`
_log = logging.getLogger(__name__)


def start_run(
    setup: RunSetup,
    out: Path,
    watcher: RunCallbacks | None = None,
    *,
    overwrite: bool = False,
    verbose: bool = False,
    warn: bool = True,
) -> Run:
    """Run an experiment into the directory `out`, and return what was recorded.

    Args:
        verbose: log each interval, and show the log.
        warn: log a warning at the start where the account will not confirm the claim.

    Raises:
        UserError: the directory is in the way; a budget that no interval fits in; a sink that cannot be reached; a full
            disk.
    """
    sure = setup.traits.foreseen and not setup.config.training.until and not budgets_of(setup)
    if sure and not all(server.link.plain for server in setup.drawn.servers()):
        planned_work(setup)  # links that close too early are refused before anything is released
    state = RunState.begun(setup)
    with create(out, overwrite) as directory, logged_to(directory.log, verbose=verbose):
        try:
            with full_disk_reported(directory):
                setup = setup.keyed()  # never twice the same key, should a setup be run twice
                carry_out(setup, directory, state, watcher or RunCallbacks(), begins=True, warn=warn)
        except UserError:
            if state.cloud is None:
                # No host came up, so nothing was released: the mended command finds nothing in its way. Later the
                # ledger may hold releases, and these are never dropped.
                directory.clear()
            raise
    return Run(out)


def carry_out(
    setup: RunSetup,
    directory: RunDirectory,
    state: RunState,
    watcher: RunCallbacks,
    *,
    begins: bool = False,
    warn: bool = False,
) -> None:
    """Run the intervals that are not done; whatever happens, everything recorded is written.

    Args:
        begins: write the inputs of the run first; a run that continues has them.
        warn: as in `start_run`.
    """
    started, end = time.perf_counter(), "failed"
    if setup.blueprint.engine == "compiled":
        compile_ahead()  # while files are written and nodes are built; hosts of this machine read it from disk
    if begins:
        write_inputs(setup, directory)
    for text in notices(setup) if warn else ():
        _log.warning("notice", extra=about(note=text))
    directory.write_summary(summary_of(setup, state, "running", state.wall_s))
    backend = chosen_backend(setup.config.runtime)
    _log.info("start", extra=about(backend=backend, seed=setup.config.seed, done=len(state.rows)))
    sinks = sinks_of(setup.config, directory, state.rows)
    try:
        end = run_intervals(setup, directory, state, sinks, watcher)
    except KeyboardInterrupt:
        end = "interrupted"
        raise
    except Unrepeatable:
        raise  # `resume` continues with fresh draws, where these are wanted
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        if state.called_off:
            end = "stopped"
            _log.info("stopped", extra=about(interval=len(state.rows), note=f"the callback raised {words}"))
        else:
            _log.error("failure", extra=about(interval=len(state.rows) + 1, error=words))
        raise
    finally:
        wall_s = state.wall_s + time.perf_counter() - started
        failing = sys.exception() is not None  # with an error that says more than what follows from it here
        try:
            if isinstance(sys.exception(), Unrepeatable):
                state.cloud = None  # of the update that came second under the same noise nothing is written
            state.rows.complete(state.accounts.missing())
            state.enter_rest(setup, directory)
            returned = write_results(after(setup, state.averages), directory, state)
            directory.write_summary(summary_of(setup, state, end, wall_s, lost_hosts(directory.log)) | returned)
            if end in FINISHED:
                noise_key.forget(directory)
        except (OSError, UserError):
            if not failing:
                raise
        for sink in sinks:
            sink.close(end)
        _log.info("end", extra=about(state=end, intervals=len(state.rows)))


def run_intervals(
    setup: RunSetup,
    directory: RunDirectory,
    state: RunState,
    sinks: list[Sink],
    watcher: RunCallbacks,
) -> End:
    """Run the intervals that are not done yet, or stop cleanly: before an interval if the watcher asks for it, or if a
    budget does not allow.

    For each interval:
    1. the cloud plans it;
    2. recorders see the plan: every release that it can make is entered in the accounts; if an observer's budget does
       not allow it, the run ends with the last model; then the releases are written to the ledger and synced to disk;
    3. the subnets run the interval, the cloud averages;
    4. the model is evaluated, when it is due; the schedule learns of its loss, and may take another model to continue
       from, which is evaluated in its place;
    5. recorders complete the interval's row of the metrics (epsilon, energy, delay, simulated time), keep it, write a
       checkpoint when it is due, and show it.
    """
    total = setup.config.training.intervals
    with ExitStack() as stack:
        ledger = stack.enter_context(JsonLines(directory.ledger, state.ledger))
        decisions = stack.enter_context(JsonLines(directory.decisions, state.decisions))
        journal = state.journal = Journal(ledger, decisions, setup.bill.powers)
        digest = run_digest(setup, directory)
        outcomes = None if setup.noise is None else Outcomes(directory.outcomes, setup.noise_key)
        try:
            setup = _after_prelude(setup, directory, state, journal, outcomes, digest)
        except BudgetSpent as spent:
            state.spent_by = spent.observer
            return "budget spent"
        models, notes = ModelScores(setup, stack), stack.enter_context(ThreadPoolExecutor(1))
        edges = stack.enter_context(start_hosts(setup.blueprint, setup.config.runtime))
        hosts_alike = setup.noise is None or alike(edges)
        checkpoints = Checkpoints(directory, setup.config.runtime, digest, state, journal, hosts_alike=hosts_alike)
        cloud = state.start(setup.cloud(edges))
        signal_step("hosts up", len(state.rows))
        if state.ledger is None:
            checkpoints.begin()
        chosen = None if setup.watched is None else noise_choice(setup, state.accounts.accounts)
        watcher.on_start()
        # Accounts come first: they keep an interval out of the ledger, and complete a row before the table has it.
        recorders: list[Recorder | LiveAccounts] = [state.accounts, state.metrics, journal, checkpoints]
        recorders += sinks
        for interval in range(len(state.rows), total):
            if cloud.ended:
                return "done"
            if setup.config.training.until and (measure := has_reached(setup, state)):
                return f"{measure} reached"
            if watcher.stop():
                checkpoints.save()
                return "interrupted"
            started = time.perf_counter()
            began_s = state.rows[-1]["clock_s"] if len(state.rows) else 0.0
            plan = replace(cloud.plan(interval, chosen), began_s=began_s)
            releases = list(cloud.releases(plan))
            try:
                for recorder in recorders:
                    recorder.before(plan, releases)
            except BudgetSpent as spent:
                state.spent_by = spent.observer
                return "budget spent"
            signal_step("released", interval)
            run_interval(edges, cloud, plan)
            # Its digest goes to disk while the model is evaluated.
            same = None if outcomes is None else notes.submit(outcomes.same, state.attempt, interval, cloud.model)
            due = (interval + 1) % setup.config.training.evaluate_every == 0 or interval + 1 == total or cloud.ended
            scores = models.scores(cloud) if due or cloud.scores else {}
            if same is not None and not same.result():
                text = f"interval {interval + 1} did not come out as it did before"
                raise Unrepeatable(f"{text}: something that it computes from changed, which no digest covers")
            signal_step("ran", interval)
            if cloud.close(scores.get(models.steering_loss)) and scores:
                scores = models.scores(cloud)
            row: Row = {
                "interval": plan.interval + 1,
                "slot": plan.last_slot,
                "local_steps": plan.decision.local_steps,
                "step_size": plan.decision.step_size,
                "participants": setup.bill.participants(plan),
                "wall_s": time.perf_counter() - started,
                **scores,
            }
            for recorder in recorders:
                recorder.after(plan, row)
            try:
                watcher.after(plan, row)
            except Exception:  # of a search that gives the run up, say: nothing of ours failed
                state.called_off = True
                raise
    return "done"


def _after_prelude(
    setup: RunSetup,
    directory: RunDirectory,
    state: RunState,
    journal: Journal,
    outcomes: Outcomes | None,
    digest: Digest,
) -> RunSetup:
    """The run on the records that its prelude leaves, once that is released, as intervals are.

    Raises:
        BudgetSpent: an observer's budget does not allow it.
    """

    def announce(part: RunSetup, plan: IntervalPlan, releases: list[Release]) -> None:
        state.accounts.before(plan, releases)
        journal.before(plan, releases)
        state.metrics.add_prelude(part, plan)
        signal_step("prelude", len(state.averages))

    def arrived(number: int, average: Tensor) -> None:
        if outcomes is not None and not outcomes.same(state.attempt, number - len(setup.prelude), average):
            raise Unrepeatable("a statistic of the prelude did not come out as it did before")

    if len(state.averages) < len(setup.prelude):
        state.cloud = setup.cloud(InProcessNodes({}))  # from here on the ledger holds releases
        if state.ledger is None:
            Checkpoints(directory, setup.config.runtime, digest, state, journal).begin()
    return with_prelude(setup, state.averages, announce, arrived)


def has_reached(setup: RunSetup, state: RunState) -> str:
    """The goal of `training.until` that the newest interval reaches, an accuracy or a cost; empty for none."""
    until, newest = setup.config.training.until or {}, state.rows[-1] if len(state.rows) else {}

    def reached(name: str, value: float) -> bool:
        found = newest.get(END_COLUMNS[name])
        if found is None:
            return False
        return bool(SCORES[name].reached(found, value) if name in SCORES else found >= value)

    return next((name for name, value in until.items() if reached(name, value)), "")


def resume_run(
    prepare: Callable[[], RunSetup],
    path: Path,
    watcher: RunCallbacks | None = None,
    *,
    verbose: bool = False,
    fresh_noise: bool = False,
    keeps_to_plan: bool = False,
) -> Run:
    """Continue the run of a directory; see `h2fdp.resume` and `start_run` for the rest.

    Args:
        prepare: makes its setup, by `Experiment.of_run`.
        keeps_to_plan: under fresh draws, release no more of any device than was planned, though epsilon be unspent.
    """
    if is_finished(path):
        return Run(path)
    with reopen(path) as directory, logged_to(directory.log, verbose=verbose), full_disk_reported(directory):
        if is_finished(path):  # by another process, until a moment ago
            return Run(path)
        key = noise_key.stored(directory)
        setup = prepare().keyed(key)  # a new key, where that is lost, makes all draws fresh

        def go_on(unrepeatable: str = "") -> None:
            run, state = _continuation(setup, directory, fresh_noise, unrepeatable)
            if run.has_noise_key and noise_key.stored(directory) is None:
                noise_key.store(directory, run.noise_key)
            if keeps_to_plan and state.fresh:  # the same draws release what was planned anyway
                state.accounts.keep_to_plan()
            cut(directory.decisions, state.decisions.bytes if state.decisions else 0)  # the later ones are made again
            carry_out(run, directory, state, watcher or RunCallbacks())

        try:
            go_on(noise_key.of_another_run(key, directory))
        except Unrepeatable as why:
            go_on(str(why))
    return Run(path)


def _continuation(
    setup: RunSetup, directory: RunDirectory, fresh_noise: bool, unrepeatable: str
) -> tuple[RunSetup, RunState]:
    """The run as it was left, with the random streams that it may continue with.

    Args:
        unrepeatable: why none of its intervals can be repeated; empty where the digests decide.
    """
    with JsonLines(directory.ledger) as ledger:  # which ends a line that was being written
        mark = ledger.mark()
    stored = load_checkpoint(directory.checkpoints, _tell_of_damage)
    digest = run_digest(setup, directory)
    if unrepeatable:  # by what the digest does not know
        digest["hardware"]["hosts"] = secrets.token_hex(16)
    if stored is None:
        state = RunState.begun(setup)
        if not mark.bytes:  # nothing was released
            _log.info("resume", extra=about(interval=1))
            return setup, state
        why = "no checkpoint is left"
    else:
        if (size := stored["nodes"]["cloud"]["model"].numel()) != setup.initial.numel():
            text = f"the checkpoint's model has {size} parameters, this one {setup.initial.numel()}"
            raise UserError(f"{text}; expected the model that the run started with", str(directory.path), "model")
        check_start(directory.ledger, Mark(**stored["ledger"]))
        # A row behind the checkpoint that no run wrote raises here; that it is this run's is seen when it comes again.
        for _ in releases_of_ledger(directory.ledger, setup.sizes, stored["ledger"]["bytes"]):
            pass
        state = RunState.restored(setup, stored, directory)
        differing = changes(setup, digest, stored["digest"])
        own = [differing[part] for part in OWN if part in differing]
        if own and not fresh_noise:
            text = f"your {', '.join(own)} changed since the run began, so its rest would be of another experiment"
            right = "expected all as it was, or --fresh-noise (fresh_noise=True) to go on with what is new"
            raise UserError(f"{text}; {right}", str(directory.path))
        why = f"the run's {', '.join(differing.values())} changed since it began"
        if not differing or setup.noise is None:  # without noise there is nothing that a second time would reveal
            told = about(interval=len(state.rows) + 1, differing=list(differing), note=why if differing else "")
            _log.log(logging.WARNING if differing else logging.INFO, "resume", extra=told)
            return setup.drawing(state.attempt), state
        why = unrepeatable or why
    lost = mark.bytes > (0 if state.ledger is None else state.ledger.bytes)
    _check_allowed(setup, state, directory, why, lost=lost, fresh_noise=fresh_noise)
    # New random streams from the next interval on; what was released of it before still counts.
    first, begin = len(state.rows) + 1, 0 if state.ledger is None else state.ledger.bytes
    state.accounts.enter_lost(releases_of_ledger(directory.ledger, setup.sizes, begin))
    state.ledger, state.attempt = None, name_of_attempt(digest, stored, mark.digest)
    state.fresh = [*state.fresh, first]
    note = f"{why}: noise and batches are drawn afresh from interval {first} on; earlier releases still count"
    _log.warning("resume afresh", extra=about(interval=first, note=note))
    return setup.drawing(state.attempt), state


def _check_allowed(
    setup: RunSetup, state: RunState, directory: RunDirectory, why: str, *, lost: bool, fresh_noise: bool
) -> None:
    """Raise for a continuation that would release intervals twice, where that is not possible or not asked for.

    Args:
        lost: intervals were released since the checkpoint.
        fresh_noise: the user asked to release them again.
    """
    first, schedule = len(state.rows) + 1, setup.traits
    # Neither its account nor a filter keeps such a run to its epsilon.
    counted = setup.iterations is not None and setup.target is None
    if lost and counted and schedule.keeps_to_iterations and not schedule.ends_by_account:
        text = (
            f"{why}, so intervals from {first} on, which were released before, would be released a second time; "
            f"nothing but its number of local steps (R_c) keeps this run to its epsilon, and repeated ones would "
            f"overspend it; expected the same environment, or a new run"
        )
        raise UserError(text, str(directory.path))
    if setup.noise is not None and lost and schedule.buffers:
        text = (
            f"{why}, so intervals from {first} on would get fresh noise, and uploads in them that were in the ledger "
            f"before would be sent twice; expected the same environment, or a new run"
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


def _tell_of_damage(path: Path) -> None:
    _log.warning("damaged", extra=about(file=path.name, note=f"{path} is damaged and ignored"))
