"""The trials of a search: made to tasks batch by batch, judged when they end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.privacy import observers
from h2fdp.records.atomic import write_text
from h2fdp.run.recipe import intervals_of
from h2fdp.run.result import Run
from h2fdp.run.state import FINISHED
from h2fdp.runtime import chosen_backend
from h2fdp.streams import Streams
from h2fdp.sweeps.directory import SweepDirectory
from h2fdp.sweeps.pool import Pool, SilentWatcher, SweepWatcher
from h2fdp.sweeps.study import SharedInputs, digest_of
from h2fdp.sweeps.task import FAILED, Outcome, Task
from h2fdp.tuning.book import TrialBook
from h2fdp.tuning.directory import TuneDirectory, name_of, rows_of_run
from h2fdp.tuning.noise_of_trials import TrialPreparation, share_of
from h2fdp.tuning.plan import CHECKS, TunePlan
from h2fdp.tuning.price import unaccounted
from h2fdp.tuning.space import Drawn
from h2fdp.tuning.trials import COLUMNS, EarlyEnd, State, Trial

_SCORES = ("accuracy", "loss")  # ends of columns
_ROUNDING = 1e-6  # relative, of divergences added up in another order


@dataclass(frozen=True)
class _Begun:
    """A trial under way."""

    number: int
    drawn: Mapping[str, Drawn]
    path: Path
    early_end: EarlyEnd


class Search(SilentWatcher):
    """The trials of a search: batch by batch made to tasks, judged when they end, and passed on to a watcher.

    Args:
        trials: how many there are.
        secret: the key of the noise of scores.

    Attributes:
        crashes: trials that failed twice by no mistake of the user. What comes next depends on all trials of a batch,
            so no other batch begins then.
    """

    def __init__(
        self,
        plan: TunePlan,
        directory: TuneDirectory,
        book: TrialBook,
        shared: SharedInputs,
        trials: int,
        secret: bytes,
        watcher: SweepWatcher,
    ) -> None:
        self._plan, self._directory, self._book, self._shared = plan, directory, book, shared
        self._trials, self._watcher = trials, watcher
        self._streams = Streams(plan.seed, secret=secret)
        self._begun: dict[str, _Begun] = {}
        self.crashes: dict[int, Outcome] = {}

    def carry_out(self, pool: Pool, stop: Callable[[], bool]) -> None:
        """Make the trials that are left, until one of them crashes or the search is to stop."""
        while not self.crashes and not stop():
            left = next((number for number in range(self._trials) if number not in self._book.trials), None)
            if left is None:
                return
            pool.carry_out(self._tasks(self._book.batch_of(left)), self)

    def _tasks(self, batch: range) -> list[Task]:
        """The trials of a batch that are left, without those whose values exclude each other or whose run has ended."""
        thresholds = self._book.thresholds(batch)
        left = {
            number: drawn
            for number, drawn in self._book.choose(batch).items()
            if number < self._trials and number not in self._book.trials
        }
        tasks = [self._task(number, drawn, thresholds) for number, drawn in left.items()]
        return [task for task in tasks if task is not None]

    def _task(self, number: int, drawn: Mapping[str, Drawn], thresholds: tuple[float, ...]) -> Task | None:
        plan, name = self._plan, name_of(number)
        try:
            config, topology = self._shared.experiment(plan.document, plan.trial_settings(dict(drawn), number))
            intervals = intervals_of(config, len(topology.subnets))
            settings = plan.trial_settings(dict(drawn), number, intervals)
            config, topology = self._shared.experiment(plan.document, settings)
            if plan.price.covered and (problems := unaccounted([config], plan.document)):
                raise UserError(problems)  # ranges are checked at some of their values only
        except UserError as error:
            self._fail(number, drawn, Outcome(FAILED, error.report, mistake=True))
            return None
        limits = {COLUMNS[cost]: limit for cost, limit in plan.section.limits.stated().items() if cost in COLUMNS}
        run, early_end = self._directory.run(number), EarlyEnd(limits, -(-intervals // CHECKS), thresholds)
        self._begun[name] = _Begun(number, drawn, run, early_end)
        runs = SweepDirectory(self._directory.path)
        state = runs.state_of(name)
        ended = early_end_of(early_end, run) if state == "interrupted" else ""
        if state in FINISHED or ended:
            self._judge(self._begun[name], ended)
            return None
        bounds = None if plan.price.budget is None else plan.price.budget.bounds
        return Task(
            name,
            settings,
            digest_of(config, self._shared.network(topology)),
            run,
            intervals,
            runs.intervals_of(name),
            chosen_backend(config.runtime) == "ray",
            early_end.reason,
            TrialPreparation(self._directory.facts(number), bounds).adjusted,
        )

    def started(self, name: str, done: int, intervals: int) -> None:
        self._watcher.started(name, done, intervals)

    def interval(self, name: str, row: dict[str, Any]) -> None:
        """A trial has come so far; its exact scores are not shown where an account covers the search."""
        shown = row if not self._plan.price.covered else {key: row[key] for key in row if not key.endswith(_SCORES)}
        self._watcher.interval(name, shown)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        begun = self._begun[name]
        if outcome.error and not again:
            self._fail(begun.number, begun.drawn, outcome)
        elif outcome.finished or outcome.ended_early:
            self._judge(begun, outcome.ended_early)
        self._watcher.ended(name, outcome, again)

    def _fail(self, number: int, drawn: Mapping[str, Drawn], outcome: Outcome) -> None:
        path = self._directory.failure(number)
        path.parent.mkdir(exist_ok=True)
        write_text(path, outcome.error.rstrip() + "\n")
        if outcome.mistake:
            self._book.add(Trial(number, drawn, "failed", reason=outcome.reason))
        else:
            self.crashes[number] = outcome

    def _judge(self, begun: _Begun, ended_early: str) -> None:
        """Enter what a trial reached."""
        rows = rows_of_run(begun.path)
        facts = json.loads(self._directory.facts(begun.number).read_text())
        known = [row for row in rows if row.get("validation_accuracy") is not None]
        checks = [float(row["validation_accuracy"]) for row in known if row["interval"] % begun.early_end.every == 0]
        if self._plan.price.covered:
            checks = []  # exact ones stay secret
        costs = {cost: float(rows[-1][column]) for cost, column in COLUMNS.items()} | {"bytes": float(facts["bytes"])}
        state: State = "pruned" if ended_early == "pruned" else "over a limit" if ended_early else "done"
        accuracy = float(known[-1]["validation_accuracy"]) if known else None
        if self._plan.price.budget is not None and accuracy is not None:
            deviation = self._plan.price.budget.score_deviation / facts["validation_records"]
            accuracy += deviation * float(self._streams.open("", "score", begun.number).standard_normal())
        trial = Trial(begun.number, begun.drawn, state, accuracy, costs, checks)
        if trial.state == "done" and any(over > 0 for over in trial.over(self._plan.section.limits.stated()).values()):
            trial = replace(trial, state="over a limit")
        if self._plan.price.budget is not None and not within_budget(begun.path, self._plan):
            reason = "its ledger is above the budget of a trial, as it was resumed on another machine"
            trial = replace(trial, state="failed", accuracy=None, reason=reason)
        self._book.add(trial)


def early_end_of(early_end: EarlyEnd, run: Path) -> str:
    """Why a run that stopped was to stop, by what it recorded; empty where it was stopped from outside."""
    return next((reason for row in rows_of_run(run) if (reason := early_end.reason(row))), "")


def within_budget(run: Path, plan: TunePlan) -> bool:
    """Whether what a trial released, by its ledger alone, keeps to the bounds of the search."""
    assert plan.price.budget is not None, "there is one"
    accounts, bounds = Run(run).privacy.accounts, plan.price.budget.bounds
    stated = plan.price.observers
    promised = accounts.observers if stated == observers() else stated
    taken = [share_of(each.composition, bounds) for observer in promised for each in accounts.classes(observer)]
    return max(taken, default=0.0) <= 1 + _ROUNDING and not any(math.isnan(each) for each in taken)
