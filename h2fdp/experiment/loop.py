"""The run loop: plan, write the ledger, run the interval, evaluate, record - once for each interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from h2fdp.experiment.cost_watch import CostWatch
from h2fdp.experiment.outcome import Scoreboard
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_watch import PrivacyWatch
from h2fdp.nodes import Cloud, IntervalPlan
from h2fdp.privacy import NoiseSource, Observer
from h2fdp.records import JsonLines, RunDirectory, metrics_schema, write_table
from h2fdp.runtime import run_interval, start_hosts

State = Literal["done", "interrupted", "budget spent"]
OnInterval = Callable[[dict[str, Any]], None]


@dataclass
class Progress:
    """What a run has recorded so far; outlives the loop, so that a failure loses nothing.

    Attributes:
        watch: the privacy accounts.
        rows: of the metrics table.
        noise: (kind, who adds it) -> smallest and largest standard deviation used.
        cloud: None until the hosts are up.
        spent_by: the observer whose budget ended the run.
    """

    watch: PrivacyWatch
    rows: list[dict[str, Any]] = field(default_factory=list)
    noise: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    cloud: Cloud | None = None
    spent_by: Observer | None = None
    directory_made: bool = False


def run_intervals(
    run: Preparation,
    directory: RunDirectory,
    progress: Progress,
    on_start: Callable[[], None],
    on_interval: OnInterval,
    stop: Callable[[], bool],
) -> State:
    """Run all intervals, or stop cleanly: before one in which `stop` is true, or that a budget does not allow.

    For each interval:
    1. the cloud plans it;
    2. every release that the plan can make is entered in the accounts; if an observer's budget does not allow it, the
       run ends with the last model;
    3. the releases are written to the ledger and synced to disk;
    4. the subnets run the interval, the cloud averages;
    5. the model is evaluated, when it is due;
    6. what it cost is added up: energy, delay, simulated time;
    7. a row is added to the metrics, written out every `runtime.checkpoint_every` intervals.
    """
    scoreboard = Scoreboard(run)
    sources = {subnet.name: subnet.noise_source for subnet in run.blueprint.facts()}
    total = run.config.training.intervals
    costs = CostWatch(run)
    with (
        JsonLines(directory.ledger) as ledger,
        JsonLines(directory.decisions) as decisions,
        start_hosts(run.blueprint, run.config.runtime) as edges,
    ):
        cloud = progress.cloud = run.cloud(edges)
        on_start()
        for interval in range(total):
            if cloud.ended:
                return "done"
            if stop():
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
            _note_noise(progress, sources, plan)
            run_interval(edges, cloud, plan)
            costs.add(plan)
            due = (interval + 1) % run.config.training.evaluate_every == 0 or interval + 1 == total or cloud.ended
            scores = scoreboard.scores(cloud.model) if due else {}
            row = _row(plan, scores | progress.watch.columns() | costs.columns(), time.perf_counter() - started)
            progress.rows.append(row)
            if (interval + 1) % run.config.runtime.checkpoint_every == 0:
                write_table(directory.metrics, progress.rows, metrics_schema(run.data.validation is not None))
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


def _note_noise(progress: Progress, sources: Mapping[str, NoiseSource], plan: IntervalPlan) -> None:
    for name, subnet in plan.subnets.items():
        for segment, levels in enumerate(subnet.noise_std):
            if levels.size:
                key = (subnet.kind(segment), sources[name])
                low, high = progress.noise.get(key, (float("inf"), 0.0))
                progress.noise[key] = (min(low, float(levels.min())), max(high, float(levels.max())))
