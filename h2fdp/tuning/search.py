"""Carry out a search: Optuna is asked for each trial, a process runs it, and its end goes back to Optuna.

Optuna's journal holds the trials; one that a kill interrupted is asked for again, and its run resumed. Under an
account all trials are drawn alike and at random, for its theorem needs that.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from h2fdp.errors import UserError
from h2fdp.privacy import observers
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import RunDirectory, locked
from h2fdp.records.tables import read_table
from h2fdp.run.recipe import intervals_of
from h2fdp.run.result import Run
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.placement import usable_cpus
from h2fdp.streams import Streams
from h2fdp.sweeps.plan import SharedInputs, digest_of
from h2fdp.sweeps.pool import Pool, SilentWatcher, SweepWatcher, WorkOptions
from h2fdp.sweeps.task import FAILED, Outcome, Task
from h2fdp.tuning.plan import CHECKS, Drawn, TunePlan, quiet_optuna, read_plan
from h2fdp.tuning.price import share_of, unaccounted, with_facts
from h2fdp.tuning.results import (
    COLUMNS,
    LEAST,
    Trial,
    Tuned,
    TuneDirectory,
    check_usable,
    name_of,
    secret_of,
    signed,
    write_results,
    write_state,
)
from h2fdp.wording import SCORED

_TRIAL = "h2fdp"  # what Optuna keeps of a trial for us
_STARTUP, _FEWEST_TO_PRUNE = 8, 5
_ROUNDING = 1e-6  # relative, of divergences added up in another order


@dataclass(frozen=True)
class Searched:
    """The progress of a search.

    Attributes:
        finished: all trials have ended.
        crashes: the trials that failed by no mistake of the user, which the same command tries again.
    """

    finished: bool
    crashes: Mapping[int, Outcome]


def conduct(plan: TunePlan, path: Path, options: WorkOptions) -> Searched:
    """Make the trials of a search that have not ended, in its directory, and write the results.

    Raises:
        UserError: the directory holds something else or is in use; no data can be read; no trial is within the limits.
    """
    directory = TuneDirectory(path.absolute())
    check_usable(directory, plan, overwrite=options.overwrite)
    _check_data(plan)
    with locked(directory.path, str(path), "search"):
        check_usable(directory, plan, overwrite=False)
        (directory.path / "runs").mkdir(exist_ok=True)
        write_state(directory, {"digest": plan.digest(), "name": plan.name, "finished": False})
        write_text(directory.plan, plan.text())
        secret = secret_of(directory, plan)
        trials = number_of_trials(plan, secret)
        search = Search(plan, directory, secret, options.watcher)
        if not search.study.trials and (first := _chosen(plan)):
            search.study.enqueue_trial(first)
        options.watcher.begin(trials, len(search.ended_trials), 0)  # how many intervals a trial has is drawn with it
        on_ray = chosen_backend(plan.config.runtime) == "ray"  # then each trial has the machine for itself
        jobs = 1 if on_ray else min(options.jobs or usable_cpus(), trials)
        own_ray = on_ray and plan.config.runtime.address is None
        Pool(plan.document, plan.shared, options, jobs, own_ray=own_ray).carry_out(search.tasks(trials), search)
        ended = search.ended_trials
        write_results(plan, directory, ended, finished=len(ended) >= trials)
        return Searched(len(ended) >= trials, search.crashes)


def number_of_trials(plan: TunePlan, secret: bytes) -> int:
    """The number of trials: as stated, or as drawn in secret."""
    if plan.price.law is None:
        return plan.section.trials
    return plan.price.law.draw(Streams(plan.seed, secret=secret).open("", "number of trials"))


def _check_data(plan: TunePlan) -> None:
    """Refuse a search whose data cannot be read, once and before anything is written."""
    _, point = plan.space.checked_points()[0]
    try:
        first = plan.experiment(plan.trial_settings(point, 0))
    except UserError:  # these values do not fit each other; trials with other values report on their data
        return
    plan.shared.check_data([first])


def _chosen(plan: TunePlan) -> dict[str, Drawn]:
    """The first values of the search: those that `training: auto` chooses for searched keys, by the names of axes.

    Empty where an account covers the search, for then all trials have to be drawn alike.
    """
    if plan.price.covered:
        return {}
    try:
        config, topology = plan.experiment(plan.trial_settings({}, 0))
        open_keys = {f"training.{key}" for key in config.training.left_open}
        axes = [axis for axis in plan.space.axes if open_keys.issuperset(axis.keys)]
        training = plan.shared.prepare(config, topology).config.training if axes else config.training
    except UserError:  # without the searched keys it is no experiment; trials report their own mistakes
        return {}
    values = training.model_dump()
    chosen = {axis.name: axis.nearest([values[key.removeprefix("training.")] for key in axis.keys]) for axis in axes}
    return {name: value for name, value in chosen.items() if value is not None}


class Search(SilentWatcher):
    """The trials of a search: made to tasks, judged when they end, and passed on to a watcher.

    Args:
        secret: the key of random draws that must stay secret.

    Attributes:
        crashes: trials that failed twice by no mistake of the user. No other trial begins then.
    """

    def __init__(self, plan: TunePlan, directory: TuneDirectory, secret: bytes, watcher: SweepWatcher) -> None:
        self._plan, self._directory, self._watcher = plan, directory, watcher
        self._streams = Streams(plan.seed, secret=secret)
        self._running: dict[str, tuple[optuna.Trial, int]] = {}  # and how many intervals are between its checks
        self.crashes: dict[int, Outcome] = {}
        directions = ["maximize", *(["minimize"] * len(plan.section.costs))]
        self.study = _opened(directory.journal, self._sampler(0), directions)

    @property
    def ended_trials(self) -> list[Trial]:
        """The trials that have ended, in their order."""
        return [
            Trial(each.number, dict(each.params), **each.user_attrs[_TRIAL])
            for each in self.study.get_trials(deepcopy=False)
            if each.state.is_finished()
        ]

    def tasks(self, trials: int) -> Iterator[Task]:
        """The trials that are left, one by one: those that were interrupted, then new ones; none after a crash."""
        plan = self._plan
        interrupted = self.study.get_trials(states=(TrialState.RUNNING,))
        left = [optuna.Trial(self.study, each._trial_id) for each in interrupted]
        while not self.crashes:
            if left:
                trial = left.pop(0)
            else:
                number = sum(each.state != TrialState.WAITING for each in self.study.get_trials(deepcopy=False))
                if number >= trials:
                    return
                self.study.sampler = self._sampler(number)
                trial = self.study.ask(plan.space.distributions)
            if (task := self._task(trial)) is not None:
                yield task

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Seeded with the number of the trial to come."""
        seed = self._streams.key("", "sampler", number) % 2**32
        if self._plan.price.covered:  # the theorem of the account needs trials that are drawn alike
            return optuna.samplers.RandomSampler(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP
            )

    def _task(self, trial: optuna.Trial) -> Task | None:
        """A trial to run; None where its values exclude each other."""
        plan, number, name = self._plan, trial.number, name_of(trial.number)
        try:
            config, topology = plan.experiment(plan.trial_settings(trial.params, number))
            intervals = intervals_of(config, len(topology.subnets))
            settings = plan.trial_settings(trial.params, number, intervals)
            config, topology = plan.experiment(settings)
            if plan.price.covered and (problems := unaccounted([(config, topology)], plan.document)):
                raise UserError(problems)  # ranges are checked at some of their values only
        except UserError as error:
            self._fail(trial, Outcome(FAILED, error.report, mistake=True))
            return None
        limits = {COLUMNS[cost]: most for cost, most in plan.section.limits.items()}
        bounds = None if plan.price.budget is None else plan.price.budget.bounds
        every = -(-intervals // CHECKS)
        self._running[name] = trial, every
        return Task(
            name,
            settings,
            digest_of(config, plan.shared.network(topology)),
            self._directory.run(name),
            intervals,
            self._directory.intervals_of(name),
            chosen_backend(config.runtime) == "ray",
            partial(early_end, limits, every, self._thresholds(), measure=plan.measure),
            partial(with_facts, self._directory.facts(name), bounds),
        )

    def _thresholds(self) -> tuple[float, ...]:
        """The score at each check below which a trial is behind half of those that have ended."""
        thresholds = []
        for check in range(CHECKS - 1 if self._plan.prunes else 0):
            reached = [trial.checks[check] for trial in self.ended_trials if len(trial.checks) > check]
            if len(reached) < _FEWEST_TO_PRUNE:
                break
            thresholds.append(float(median(reached)))
        return tuple(thresholds)

    def started(self, name: str, done: int, intervals: int) -> None:
        self._watcher.started(name, done, intervals)

    def interval(self, name: str, row: dict[str, Any]) -> None:
        """A trial has come so far; its exact scores are not shown where an account covers the search."""
        shown = row if not self._plan.price.covered else {key: row[key] for key in row if not key.endswith(SCORED)}
        self._watcher.interval(name, shown)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        trial, every = self._running[name]
        if outcome.error and not again:
            self._fail(trial, outcome)
        elif outcome.finished or outcome.ended_early:
            self._judge(trial, every, outcome.ended_early)
        self._watcher.ended(name, outcome, again)

    def _fail(self, trial: optuna.Trial, outcome: Outcome) -> None:
        self._directory.note_failure(name_of(trial.number), outcome.error)
        if outcome.mistake:
            self._tell(trial, TrialState.FAIL, {"state": "failed", "reason": outcome.reason})
        else:
            self.crashes[trial.number] = outcome

    def _judge(self, trial: optuna.Trial, every: int, ended_early: str) -> None:
        """Tell Optuna what a trial reached; one over a limit has the objectives that it reached."""
        plan, name = self._plan, name_of(trial.number)
        run = self._directory.run(name)
        rows = read_table(RunDirectory(run).metrics).to_pylist()
        facts = json.loads(self._directory.facts(name).read_text())
        scores = scores_of(rows, plan.measure)
        checks = [score for interval, score in scores.items() if interval % every == 0]
        score = list(scores.values())[-1] if scores else None
        costs = {cost: float(rows[-1][column]) for cost, column in COLUMNS.items()}
        excesses = {cost: costs[cost] / most - 1 for cost, most in plan.section.limits.items()}
        for cost, excess in excesses.items():
            trial.set_constraint(cost, excess)
        state = ended_early or ("over a limit" if any(excess > 0 for excess in excesses.values()) else "done")
        reached: dict[str, Any] = {"costs": costs}
        if (budget := plan.price.budget) is not None:
            if not within_budget(run, plan):
                reason = "its ledger is above the budget of a trial, as it was resumed on another machine"
                self._tell(trial, TrialState.FAIL, reached | {"state": "failed", "reason": reason})
                return
            noise = float(self._streams.open("", "score", trial.number).standard_normal())
            score = (score or 0.0) + budget.score_deviation / facts["validation_records"] * noise
            checks = []  # exact ones stay secret
        reached |= {"state": state, "score": score, "checks": checks}
        if plan.prunes:
            for step, each in enumerate(checks):
                trial.report(each, step)
        known = LEAST if score is None else score
        values = None if state == "pruned" else [known, *(costs[name] for name in plan.section.costs)]
        self._tell(trial, TrialState.PRUNED if state == "pruned" else TrialState.COMPLETE, reached, values)

    def _tell(
        self, trial: optuna.Trial, state: TrialState, facts: Mapping[str, Any], values: Sequence[float] | None = None
    ) -> None:
        trial.set_user_attr(_TRIAL, dict(facts))
        self.study.tell(trial, values, state)


def scores_of(rows: Sequence[Mapping[str, Any]], measure: str = "accuracy") -> dict[int, float]:
    """Interval -> score on validation records, the larger the better, of rows of the metrics that have one.

    None right is a score, too: to pass it over would let one record move the last score by more than its share.

    >>> scores_of([{"interval": 1, "validation_accuracy": 0.5}, {"interval": 2, "validation_accuracy": 0.0}])
    {1: 0.5, 2: 0.0}
    >>> scores_of([{"interval": 3, "validation_accuracy": None}])
    {}
    """
    found = {row["interval"]: row.get(f"validation_{measure}") for row in rows}
    return {interval: signed(measure, float(value)) for interval, value in found.items() if value is not None}


def early_end(
    limits: Mapping[str, float],
    every: int,
    thresholds: Sequence[float],
    row: Mapping[str, Any],
    measure: str = "accuracy",
) -> str:
    """Why a trial ends after this interval, empty where it goes on; see `sweeps.pool.Task.early_end`.

    Args:
        limits: column of the metrics -> the most of it.
        every: intervals between checks.
        thresholds: the score that is asked for at each check that has one, the first at place 0.
    """
    if any(row[column] > limit for column, limit in limits.items()):
        return "over a limit"
    check, rest = divmod(int(row["interval"]), every)
    value = row.get(f"validation_{measure}")
    if rest or not 1 <= check <= len(thresholds) or value is None:
        return ""
    return "pruned" if signed(measure, value) < thresholds[check - 1] else ""


def _opened(path: Path, sampler: optuna.samplers.BaseSampler, directions: Sequence[Any]) -> optuna.Study:
    """The study of a journal, from which what a kill left unfinished is removed; no other process has it open."""
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    if path.is_file():
        written = path.read_bytes()
        path.write_bytes(written[: written.rfind(b"\n") + 1])
    with quiet_optuna():
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(
            storage=storage, sampler=sampler, study_name="tune", directions=directions, load_if_exists=True
        )


def within_budget(run: Path, plan: TunePlan) -> bool:
    """Whether what a trial released, by its ledger alone, keeps to the bounds of the search."""
    assert plan.price.budget is not None, "there is one"
    accounts, bounds = Run(run).privacy.accounts, plan.price.budget.bounds
    stated = plan.price.observers
    promised = accounts.observers if stated == observers() else stated
    taken = [share_of(each.composition, bounds) for observer in promised for each in accounts.classes(observer)]
    return max(taken, default=0.0) <= 1 + _ROUNDING and not any(math.isnan(each) for each in taken)


def tune(
    file: str | Path,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    data_root: str | Path | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
) -> Tuned:
    """Search the ranges of a file's `tune:` section, or go on with that.

    Args:
        settings: as `--set` takes them; `tune.trials=50` changes the search.
        out: its directory, by default `tunes/<name>`.
        jobs: trials at a time, by default one for each CPU; with 1, one after another in this process.
        overwrite: begin again where the directory has another search.

    Raises:
        UserError: a wrong value; a search that is not covered by the account that it asks for; a directory of something
            else, or in use; no trial within the limits.
    """
    plan = read_plan(Path(file), settings, SharedInputs(None if data_root is None else Path(data_root)))
    directory = plan.directory if out is None else Path(out)
    conduct(plan, directory, WorkOptions(jobs, overwrite))
    return Tuned(directory)
