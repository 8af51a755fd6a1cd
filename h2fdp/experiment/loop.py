"""The run loop: plan, write the ledger, run the interval, evaluate, record - once for each interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from h2fdp.experiment.outcome import Scoreboard
from h2fdp.experiment.preparation import Preparation
from h2fdp.nodes import Cloud, IntervalPlan
from h2fdp.records import METRICS_SCHEMA, LedgerFile, RunDirectory, write_table
from h2fdp.runtime import start_hosts

State = Literal["done", "interrupted"]
OnInterval = Callable[[dict[str, Any]], None]


@dataclass
class Progress:
    """What a run has recorded so far; outlives the loop, so that a failure loses nothing.

    Attributes:
        rows: of the metrics table.
        noise: (kind, who adds it) -> smallest and largest standard deviation used.
        cloud: None until the hosts are up.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    noise: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    cloud: Cloud | None = None


def run_intervals(
    run: Preparation,
    directory: RunDirectory,
    progress: Progress,
    on_start: Callable[[], None],
    on_interval: OnInterval,
    stop: Callable[[], bool],
) -> State:
    """Run all intervals, or stop cleanly after the one in which `stop` turned true.

    For each interval:
    1. the cloud plans it;
    2. every release that the plan can make is written to the ledger and synced to disk;
    3. the subnets run it, the cloud averages;
    4. the model is evaluated, when it is due;
    5. a row is added to the metrics, written out every `runtime.checkpoint_every` intervals.
    """
    scoreboard = Scoreboard(run)
    total = run.config.training.intervals
    with LedgerFile(directory.ledger) as ledger, start_hosts(run.blueprint, run.config.runtime) as edges:
        cloud = progress.cloud = run.cloud(edges)
        on_start()
        for interval in range(total):
            if stop():
                return "interrupted"
            started = time.perf_counter()
            plan = cloud.plan(interval)
            ledger.append(asdict(release) for release in cloud.releases(plan))
            _note_noise(progress, run, plan)
            cloud.run_interval(plan)
            due = (interval + 1) % run.config.training.evaluate_every == 0 or interval + 1 == total
            scores = scoreboard.scores(cloud.model) if due else {}
            row = _row(plan, scores, time.perf_counter() - started)
            progress.rows.append(row)
            if (interval + 1) % run.config.runtime.checkpoint_every == 0:
                write_table(directory.metrics, progress.rows, METRICS_SCHEMA)
            on_interval(row)
    return "done"


def _row(plan: IntervalPlan, scores: dict[str, float], wall_s: float) -> dict[str, Any]:
    return {
        "interval": plan.interval + 1,
        "slot": plan.last_slot,
        **scores,
        "local_steps": plan.decision.local_steps,
        "step_size": plan.decision.step_size,
        "participants": plan.participants,
        "wall_s": wall_s,
    }


def _note_noise(progress: Progress, run: Preparation, plan: IntervalPlan) -> None:
    for facts in run.blueprint.facts():
        subnet = plan.subnets.get(facts.name)
        if subnet is None or facts.noise_source == "none":
            continue
        for segment, levels in enumerate(subnet.noise_std):
            key = (subnet.kind(segment), facts.noise_source)
            low, high = progress.noise.get(key, (float("inf"), 0.0))
            progress.noise[key] = (min(low, float(levels.min())), max(high, float(levels.max())))
