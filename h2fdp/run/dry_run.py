"""What a run will do and cost, without running it: `h2fdp run --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from h2fdp.methods import name_of
from h2fdp.run.forecast import first_interval, forecast
from h2fdp.run.privacy_report import noises, privacy_report
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.section import inline_workers
from h2fdp.runtime.step_time import seconds_per_step
from h2fdp.wording import counted

_PROCESS_BYTES = 350_000_000  # a process that has imported torch and has Ray's or our own parts beside it


def estimate(run: RunSetup) -> dict[str, Any]:
    """The plan of a run, with estimates of time and memory; a few local steps are timed for the first one.

    `privacy` is the `privacy_report` of the planned run, None where there is no guarantee or the run leaks.
    """
    config = run.config
    work, adaptive = _work(run), run.traits.controlled
    privacy = None if run.noise is None or run.leaks else privacy_report(run)
    hosts = inline_workers(config.runtime)
    return {
        "method": name_of(run.config.method),
        "backend": chosen_backend(run.config.runtime),
        "engine": run.blueprint.engine,
        "devices": run.topology.devices,
        "edge servers": run.topology.edges,
        "trusted": sum(subnet.trusted for subnet in run.topology.subnets),
        **_secure_sums(run),
        "records a device": f"{run.data.sizes.min()} to {run.data.sizes.max()}",
        "model parameters": run.initial.numel(),
        **({"control": "a forecast that assumes the controller learns nothing"} if adaptive else {}),
        "slots": work.slots,
        "local aggregations": work.local_aggregations,
        "global aggregations": work.intervals,
        "device steps": work.steps,
        "time": f"about {seconds_per_step(run.blueprint, run.initial) * work.steps / hosts:.0f} s of training",
        "memory": f"about {(_PROCESS_BYTES * (1 + hosts) + 3 * run.blueprint.data_bytes) / 1e9:.1f} GB",
        "privacy": privacy,
        "leaking": run.leaks,
        "noises": noises(run) if privacy is None else privacy["noises"],
    }


def _secure_sums(run: RunSetup) -> dict[str, str]:
    """How many edge servers hold secure sums, and what their devices exchange for one beside the vector, at most."""
    if run.exchange_sizes is None:
        return {}
    sizes = [part.noise_std.shape[1] for part in first_interval(run).subnets.values() if part.masked]
    if not sizes:
        return {}
    more = run.exchange_sizes.keys_and_shares(max(sizes))
    bits = round(more * run.costs.message_bits)
    servers, share = counted(len(sizes), "edge server"), f"{more:.2g} times a message with the model"
    return {"secure sums": f"{servers}; for each sum a device also exchanges {bits:,} bits of keys and shares, {share}"}


@dataclass(frozen=True)
class _Work:
    """What all intervals together do."""

    intervals: int
    slots: int
    local_aggregations: int
    steps: int


def _work(run: RunSetup) -> _Work:
    """By the first interval's plan where all are alike; else each is planned, at what is known before the run."""
    expected = [(each.plan, each.times) for each in forecast(run, by_participants=False)]
    return _Work(
        intervals=sum(times for _, times in expected),
        slots=sum(times * plan.decision.local_steps for plan, times in expected),
        local_aggregations=sum(
            times * len(run.aggregation_times.offsets(plan.decision.local_steps)) for plan, times in expected
        ),
        steps=sum(times * plan.device_steps for plan, times in expected),
    )
