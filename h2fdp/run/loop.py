"""The run loop: plan, write the ledger, run the interval, evaluate, record - once for each interval."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from h2fdp.protocol import IntervalPlan
from h2fdp.records import JsonLines, RunDirectory, about, cut
from h2fdp.run.checkpoints import Checkpoints
from h2fdp.run.model_scores import Scoreboard
from h2fdp.run.setup import RunSetup
from h2fdp.run.state import Progress
from h2fdp.runtime import run_interval, start_hosts
from h2fdp.runtime.hardware import alike

State = Literal["done", "interrupted", "budget spent"]
OnInterval = Callable[[dict[str, Any]], None]
_log = logging.getLogger(__name__)


def run_intervals(
    run: RunSetup,
    directory: RunDirectory,
    progress: Progress,
    checkpoints: Checkpoints,
    on_start: Callable[[], None],
    on_interval: OnInterval,
    stop: Callable[[], bool],
) -> State:
    """Run the intervals that are not done yet, or stop cleanly: before one in which `stop` is true, or that a budget
    does not allow.

    For each interval:
    1. the cloud plans it;
    2. every release that the plan can make is entered in the accounts; if an observer's budget does not allow it, the
       run ends with the last model;
    3. the releases are written to the ledger and synced to disk;
    4. the subnets run the interval, the cloud averages;
    5. the model is evaluated, when it is due;
    6. the schedule learns of its loss, and may take another model to go on from; what it cost is added up: energy,
       delay, simulated time;
    7. a row is added to the metrics, and a checkpoint is written, when it is due.
    """
    scoreboard = Scoreboard(run)
    sources = {subnet.name: subnet.noise_source for subnet in run.blueprint.facts()}
    total = run.config.training.intervals
    decided = progress.decisions
    cut(directory.decisions, decided.bytes if decided else 0)  # the later ones are made again
    with (
        JsonLines(directory.ledger, progress.ledger) as ledger,
        JsonLines(directory.decisions, decided) as decisions,
        start_hosts(run.blueprint, run.config.runtime) as edges,
    ):
        if run.noise is not None and not alike(edges):
            checkpoints.tell_mixed(progress)
        cloud = progress.start(run.cloud(edges))
        if progress.ledger is None:
            checkpoints.begin(progress, ledger, decisions)
        on_start()
        for interval in range(len(progress.rows), total):
            if cloud.ended:
                return "done"
            if stop():
                checkpoints.save(progress, ledger, decisions)
                return "interrupted"
            started = time.perf_counter()
            plan = cloud.plan(interval)
            releases = list(cloud.releases(plan))
            progress.spent_by = progress.watch.admit(plan, releases)
            if progress.spent_by is not None:
                return "budget spent"
            ledger.append(release.as_row() for release in releases)
            if plan.decision.reasons is not None:
                decisions.append([dict(plan.decision.reasons)])
            if run.noise is not None:
                progress.note_noise(run.noise, sources, plan)
            run_interval(edges, cloud, plan)
            progress.costs.add(plan)
            due = (interval + 1) % run.config.training.evaluate_every == 0 or interval + 1 == total or cloud.ended
            scores = scoreboard.scores(cloud) if due or cloud.scores else {}
            cloud.close(scores.get(run.steering_loss))
            columns = progress.watch.columns() | progress.costs.columns()
            row = _row(plan, scores | columns, time.perf_counter() - started)
            progress.rows.append(row)
            _log.debug("interval", extra=about(**row))
            checkpoints.save_if_due(progress, ledger, decisions)
            on_interval(row)
    return "done"


def _row(plan: IntervalPlan, values: Mapping[str, float | None], wall_s: float) -> dict[str, Any]:
    return {
        "interval": plan.interval + 1,
        "slot": plan.last_slot,
        "local_steps": plan.decision.local_steps,
        "step_size": plan.decision.step_size,
        "participants": plan.participants,
        "wall_s": wall_s,
        **values,
    }
