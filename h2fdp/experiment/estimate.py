"""What a run will do and cost, without running it: `h2fdp run --dry-run`."""

from __future__ import annotations

import time
from typing import Any

import torch

from h2fdp.data.drawn import LARGEST_HELD
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_report import noises
from h2fdp.methods import name_of
from h2fdp.nodes import LocalTeam
from h2fdp.nodes.plans import TrainingOrder
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.local_hosts import run_arithmetic

_PROCESS_BYTES = 350_000_000  # a process that has imported torch and has Ray's or our own parts beside it
_PROBE_STEPS = 5


def estimate(run: Preparation) -> dict[str, Any]:
    """The plan of a run, with estimates of time and memory; a few local steps are timed for the first one."""
    training, privacy = run.config.training, run.config.privacy
    cloud = run.cloud(LocalTeam({}))
    plan = cloud.plan(0)
    steps = plan.participants * training.local_steps * training.intervals
    hosts = run.config.runtime.hosts if isinstance(run.config.runtime.hosts, int) else 1
    data_bytes = min(run.data.values, LARGEST_HELD) * run.data.test.x.itemsize + run.data.test.x.nbytes
    return {
        "method": name_of(run.config.method),
        "backend": chosen_backend(run.config.runtime),
        "devices": run.topology.devices,
        "edge servers": run.topology.edges,
        "trusted": sum(subnet.trusted for subnet in run.topology.subnets),
        "records a device": f"{run.data.sizes.min()} to {run.data.sizes.max()}",
        "model parameters": run.initial.numel(),
        "slots": training.intervals * training.local_steps,
        "local aggregations": len(run.rhythm.offsets(training.local_steps)) * training.intervals,
        "global aggregations": training.intervals,
        "epsilon claimed": privacy.epsilon if run.noise is not None else None,
        "device steps": steps,
        "time": f"about {_seconds_per_step(run) * steps / hosts:.0f} s of training",
        "memory": f"about {(_PROCESS_BYTES * (1 + hosts) + 3 * data_bytes) / 1e9:.1f} GB",
        "noises": noises(run),
    }


def _seconds_per_step(run: Preparation) -> float:
    """Time of a local step of one device, measured on the first subnet."""
    with run_arithmetic():
        group = run.blueprint.device_group(0)
        cloud = run.cloud(LocalTeam({}))
        plan = next(iter(cloud.plan(0).subnets.values()))
        order = TrainingOrder(
            0, 0, _PROBE_STEPS, "local", plan.step_size, plan.rows, torch.ones(len(plan.rows)).numpy()
        )
        model = run.initial.to(run.blueprint.device)
        group.train(model, order)  # the first call warms caches
        started = time.perf_counter()
        group.train(model, order)
        return (time.perf_counter() - started) / (_PROBE_STEPS * len(plan.rows))
