"""What a run will do and cost, without running it: `h2fdp run --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from h2fdp.methods import name_of
from h2fdp.run.engine_choice import seconds_per_step
from h2fdp.run.forecast import first_interval, forecast
from h2fdp.run.live_accounts import budgets_of
from h2fdp.run.privacy_report import noises, privacy_report
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.section import inline_workers
from h2fdp.wording import counted

_PROCESS_BYTES = 350_000_000  # a process that has imported torch and has Ray's or our own parts beside it
_MOST_CHANNELS = 5_000_000  # that are drawn before a run, a few seconds of them
_BITS = 8

CostKind = Literal["exact", "at most", "forecast", "estimate"]


def estimate(run: RunSetup) -> dict[str, Any]:
    """The plan of a run, with estimates of time and memory; a few local steps are timed for the first one.

    `privacy` is the `privacy_report` of the planned run, None where there is no guarantee or the run leaks.
    """
    config = run.config
    work, adaptive = planned_work(run), run.traits.controlled
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
        **({"control": f"a forecast that assumes the controller learns nothing{_within(run)}"} if adaptive else {}),
        "slots": work.slots,
        "local aggregations": work.local_aggregations,
        "global aggregations": work.intervals,
        "device steps": work.steps,
        "network": work.costs(),
        "time": f"about {seconds_per_step(run.blueprint, run.initial) * work.steps / hosts:.0f} s of training",
        "memory": f"about {(_PROCESS_BYTES * (1 + hosts) + 3 * run.blueprint.data_bytes) / 1e9:.1f} GB",
        "privacy": privacy,
        "leaking": run.leaks,
        "noises": noises(run) if privacy is None else privacy["noises"],
    }


def _within(run: RunSetup) -> str:
    """What the controller does not exceed, whatever it learns."""
    if (budget := run.config.control.budget) is None:
        return ""
    most = {"J": budget.joules, "s of delay": budget.seconds}
    allowed = " and ".join(f"{value:g} {unit}" for unit, value in most.items() if value is not None)
    return f"; control.budget allows at most {allowed}"


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
class PlannedWork:
    """What all intervals together do, and what the network spends on them.

    Attributes:
        energy_j, delay_s, clock_s: what the metrics have of these after the last interval.
        device_bytes: of the models that devices send; what secure sums exchange besides is left out.
        kind: how near the costs are: `exact`, those that the run ends with; `at most`, where it may end early;
            `forecast`, where the schedule decides during the run; `estimate`, of a network of which not all channels
            are drawn beforehand.
    """

    intervals: int
    slots: int
    local_aggregations: int
    steps: int
    energy_j: float
    delay_s: float
    clock_s: float
    device_bytes: float
    kind: CostKind

    def costs(self) -> dict[str, Any]:
        """The costs by their names in the metrics, and their `kind`."""
        names = ("energy_j", "delay_s", "clock_s", "device_bytes", "kind")
        return {name: getattr(self, name) for name in names}


def nearness(costs: Mapping[str, Any]) -> str:
    """What to write before a number of `PlannedWork.costs`."""
    return {"exact": "", "at most": "at most "}.get(costs["kind"], "about ")


def costs_in_words(costs: Mapping[str, Any]) -> dict[str, str]:
    """Rows of the terminal about `PlannedWork.costs`."""
    kind, word = costs["kind"], nearness(costs)
    why = {"at most": "; less if the run ends early", "forecast": "; the schedule decides during the run"}
    delay, clock = f"{costs['delay_s']:.4g} s summed over devices", f"{costs['clock_s']:.4g} s on a simulated clock"
    return {
        "energy": f"{word}{costs['energy_j']:.4g} J{why.get(kind, '')}",
        "delay": f"{word}{delay}; {clock}",
        "sent by devices": f"{word}{costs['device_bytes'] / 1e6:.4g} MB",
    }


def planned_work(run: RunSetup) -> PlannedWork:
    """The planned intervals, under the channels, the participants and the faults that the run will draw.

    Of a very large network the first channels and participants stand for all.
    """
    most = max(1, _MOST_CHANNELS // run.topology.devices)
    drawn_all = run.config.training.intervals <= most
    intervals = slots = local = steps = messages = 0
    spent = dict.fromkeys(("energy_j", "delay_s", "clock_s"), 0.0)
    for expected in forecast(run, by_participants=drawn_all):
        plan, times = expected.plan, expected.times
        intervals += times
        slots += times * plan.decision.local_steps
        local += times * len(run.aggregation_times.offsets(plan.decision.local_steps))
        steps += times * plan.device_steps
        messages += times * sum(len(part.rows) * len(part.segments) for part in plan.subnets.values())
        drawn = min(times, most)
        for interval in range(plan.interval, plan.interval + drawn):
            for column, more in run.interval_costs(replace(plan, interval=interval)).items():
                spent[column] += more * (times / drawn)
    sent = messages * run.costs.message_bits / _BITS
    return PlannedWork(intervals, slots, local, steps, **spent, device_bytes=sent, kind=_kind(run, drawn_all))


def _kind(run: RunSetup, drawn_all: bool) -> CostKind:
    if not run.traits.foreseen:
        return "forecast"
    if not drawn_all:
        return "estimate"
    return "at most" if budgets_of(run) or run.config.training.until is not None else "exact"
