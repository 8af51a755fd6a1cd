"""What a run will do and cost, without running it, and the controller's first decision: `run --dry-run`, `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from h2fdp.errors import UserError
from h2fdp.methods import name_of
from h2fdp.run.api import Experiment
from h2fdp.run.engine_choice import seconds_per_step
from h2fdp.run.forecast import first_interval, forecast
from h2fdp.run.live_accounts import budgets_of
from h2fdp.run.privacy_report import noises, privacy_report
from h2fdp.run.setup import RunSetup, range_of
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.section import inline_workers
from h2fdp.schedules import H2fdpController
from h2fdp.schedules.problem import ControlProblem, ObjectiveTerms, solve
from h2fdp.schedules.registry import chosen
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.wording import counted, facts_html, table_html, word

_PROCESS_BYTES = 350_000_000  # a process that has imported torch and has Ray's or our own parts, too
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
    """How many edge servers hold secure sums, and what their devices exchange for one besides the vector, at most."""
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


_MOST_LEVELS = 20  # rows of the map


@dataclass(frozen=True)
class ObjectiveMap:
    """Problem P's objective over tau and one participation level for all subnets (each at most all its devices).

    Attributes:
        tau: (T,) 1..tau_max.
        level: (L,) devices of each subnet.
        objective: (L, T).
    """

    tau: list[int]
    level: list[int]
    objective: list[list[float]]


@dataclass(frozen=True)
class FirstDecision:
    """What the controller decides for the first interval, and why.

    Algorithm 1 decides under mean costs, and everything that it takes to recompute it is here; the controller of
    budgets and targets decides under the channels of the first interval.

    Attributes:
        tau: interval length.
        participation: edge server -> devices that take part.
        objective: of problem P, the sum of `terms`.
        terms: energy, delay and gap, weighted by the alphas.
        runner_up: the best of any other tau, or the best plan of another number of intervals with what it would cost.
        constants: by their letters in the paper.
        edges: edge server -> trust, whether one noise covers its sum, devices, mean cost of a device's message, cost of
            its own message.
        map: the objective elsewhere.
        weighed: joules and seconds of the interval, and noise as a share of the way; None under Algorithm 1.
        multipliers: what a joule and a second weigh; None under Algorithm 1.
        power_dbm: the least, mean and most dBm of all devices under the channels of the first interval; None where
            each sends with its own power.
        stated: whether the experiment asks for this controller; where it does not, its own schedule decides in a run.
        network: what the whole run under this controller is expected to cost, see `PlannedWork.costs`.
    """

    tau: int
    participation: dict[str, int]
    objective: float
    terms: ObjectiveTerms
    runner_up: dict[str, float] | None
    constants: dict[str, float | None]
    edges: dict[str, dict[str, float | bool | str]]
    map: ObjectiveMap
    weighed: dict[str, float] | None = None
    multipliers: dict[str, float] | None = None
    power_dbm: dict[str, float] | None = None
    stated: bool = True
    network: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        """For notebooks: tau, who takes part, and what the objective is made of."""
        facts = {
            "tau": self.tau,
            "objective": f"{self.objective:.4g}: energy {self.terms.energy:.4g}, delay {self.terms.delay:.4g}, "
            f"privacy gap {self.terms.gap:.4g} (weighted)",
            "constants": ", ".join(
                f"{name} {word(value)}" for name, value in self.constants.items() if value is not None
            ),
        }
        rows = [{"edge server": name, "devices that take part": count} for name, count in self.participation.items()]
        return facts_html("the controller's first decision", facts, table_html("", rows, most=10))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(
    path: str | Path | Experiment, settings: Sequence[str] = (), data_root: str | Path | None = None
) -> FirstDecision:
    """The first decision for an experiment file, with the controller on whether or not the file enables it.

    Args:
        path: or an `Experiment`, which enables it itself: `control={"enabled": True}`.
        settings: of a file, as `--set` takes them, `control.alpha1=2`.

    Raises:
        UserError: a wrong file; a method without noise, which leaves nothing to weigh.
    """
    if isinstance(path, Experiment):
        if settings:
            raise UserError("an Experiment has its settings; expected none, or a file", key="settings")
        if not path.config.control.enabled:
            raise UserError('expected control={"enabled": True}, found it disabled', "h2fdp.plan", "control")
        return _with_costs(path.prepare(data_root), stated=True)
    config = Experiment.from_file(path, settings).config
    schedule = config.method.schedule
    if not (chosen(schedule).controlled or chosen(schedule).as_stated):
        text = f"the controller takes the place of a fixed schedule; expected fixed or h2fdp, found {schedule.name}"
        raise UserError(text, str(path), "method.schedule")
    experiment = Experiment.from_file(path, [*settings, "control.enabled=true"])
    return _with_costs(experiment.prepare(data_root), stated=config.control.enabled or chosen(schedule).controlled)


def _with_costs(run: RunSetup, *, stated: bool) -> FirstDecision:
    return replace(first_decision(run), stated=stated, network=planned_work(run).costs())


def first_decision(run: RunSetup) -> FirstDecision:
    """See `plan`."""
    if not run.config.control.is_algorithm_1:
        return _planned_decision(run)
    section = run.config.control.model_copy(update={"channel": "expected"})
    schedule, costs = H2fdpController.of(replace(run.context, control=section)), run.costs.expected()
    problem = schedule.problem(0, costs)
    solutions = solve(problem, section.solver)
    best, other = solutions.best, solutions.runner_up
    names = [subnet.name for subnet in run.topology.subnets]
    trust = {subnet.name: subnet.trust for subnet in run.topology.subnets}
    return FirstDecision(
        tau=best.tau,
        participation=dict(zip(names, best.participation.tolist(), strict=True)),
        objective=best.objective,
        terms=best.terms,
        runner_up=None if other is None else {"tau": other.tau, "objective": other.objective},
        constants=schedule.constants(0, best.tau),
        edges={name: {"trust": trust[name], **facts} for name, facts in schedule.edges(costs).items()},
        map=_map(problem),
        power_dbm=_powers(run),
    )


def _planned_decision(run: RunSetup) -> FirstDecision:
    """That of a run that is planned as a whole: its map has the plans that were weighed, by their interval length."""
    schedule = run.schedule()
    assert isinstance(schedule, TurnsController), "budgets and targets have a controller of their own"
    weighed = {each.tau: schedule.told(each)["objective"] for each in sorted(schedule.weighed, key=lambda of: -of.tau)}
    lengths = sorted(weighed)
    objectives = ObjectiveMap(lengths, [int(run.context.sizes.max())], [[weighed[tau] for tau in lengths]])
    decision = schedule.decide(0, 0)
    why = decision.reasons
    assert why is not None, "a controller says why"
    names = [subnet.name for subnet in run.topology.subnets]
    return FirstDecision(
        tau=decision.local_steps,
        participation=dict(zip(names, decision.participation.tolist(), strict=True)),
        objective=why["objective"],
        terms=ObjectiveTerms(**why["terms"]),
        runner_up=why["runner_up"],
        constants=why["constants"],
        edges=_edges(run),
        map=objectives,
        weighed=why["weighed"],
        multipliers=why["multipliers"],
        power_dbm=_powers(run),
    )


def _powers(run: RunSetup) -> dict[str, float] | None:
    return range_of(run.costs.drawn(0).power_dbm) if run.costs.chooses_power else None


def _edges(run: RunSetup) -> dict[str, dict[str, float | bool | str]]:
    """Edge server -> what is known of it, and what a message of its devices costs on average in the first interval."""
    costs = run.costs.drawn(0)
    places = np.cumsum(run.context.sizes) - run.context.sizes
    joules, seconds = (np.add.reduceat(of, places) / run.context.sizes for of in (costs.joules, costs.seconds))
    return {
        subnet.name: {
            "trust": subnet.trust,
            "one_noise": bool(run.context.one_noise[row]),
            "devices": int(run.context.participation[row]),
            "device_joules": float(joules[row]),
            "device_seconds": float(seconds[row]),
        }
        for row, subnet in enumerate(run.topology.subnets)
    }


def _map(problem: ControlProblem) -> ObjectiveMap:
    lengths = list(range(1, problem.tau_max + 1))
    most = int(problem.limits.max())
    levels = sorted({int(level) for level in np.linspace(1, most, min(most, _MOST_LEVELS)).round()})
    rows = [[problem.terms(tau, np.minimum(level, problem.limits)).total for tau in lengths] for level in levels]
    return ObjectiveMap(lengths, levels, rows)
