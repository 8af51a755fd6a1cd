"""What is known of a run before it starts: its account, its costs, the controller's first decision.

`run --dry-run`, `privacy calibrate` and `plan` show it; nothing is trained.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from h2fdp.arithmetic import run_arithmetic
from h2fdp.errors import UserError
from h2fdp.methods import name_of
from h2fdp.privacy import ADDED_BY, Accounts, AggregationCounts, Observer
from h2fdp.privacy.accounting import coarse
from h2fdp.privacy.statement import epsilons, worst_epsilon
from h2fdp.protocol.interval_plan import range_of
from h2fdp.protocol.subnet_facts import tier_aggregations
from h2fdp.run.forecast import exhausted, first_interval, nearness, planned_accounts, planned_work, rough_accounts
from h2fdp.run.live_accounts import notes, verdict
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.placement import inline_workers
from h2fdp.schedules import H2fdpController
from h2fdp.schedules.problem import ObjectiveTerms
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.training.local_steps import StepTerms
from h2fdp.wording import facts_html, table_html, word

LEAKS = "oracle sends raw estimates to the cloud and on untrusted ways; no epsilon covers that"


def privacy_report(run: RunSetup) -> dict[str, Any]:
    """What the planned run gives each observer, each number about the device that is worst by it; and all noises.

    `claimed` is the paper's formula, `rdp` and `pld` upper bounds by the mixture of the specification, `coarse` the
    subsampled Gaussian of the whole upload. The verdict is about the claim, or about the `target` where noise was
    calibrated to an account: *met* when the smaller upper bound is at most that, *open* otherwise; *trusted*, *nothing
    released* and *not targeted* say themselves why there is none.

    Raises:
        UserError: the method adds no noise.
    """
    if run.noise is None:
        raise UserError("this method adds no noise, so there is nothing to calibrate", key="method")
    if run.leaks:
        raise UserError(LEAKS, key="control.estimates")
    accounts = planned_accounts(run)
    claimed = planned_claim(run, accounts)
    return {
        "delta": run.config.privacy.delta,
        "adjacency": run.config.privacy.adjacency,
        "factor": run.factor,
        "target": run.target,
        "observers": {
            each: {"claimed": claimed, **_numbers(run, accounts, each, claimed)} for each in accounts.reported
        },
        "noises": noises(run),
        "iterations": run.iterations,
        "notes": list(notes(run)),
    }


def _numbers(run: RunSetup, accounts: Accounts, observer: Observer, claimed: float | None) -> dict[str, Any]:
    delta = run.config.privacy.delta
    classes = list(accounts.classes(observer))
    if not classes:
        empty = dict.fromkeys(("rdp", "pld", "coarse"))
        return {**empty, "verdict": run.placement.silence(observer), "device": None}
    compositions = [each.composition for each in classes]
    (by_rdp, rdp), (by_pld, pld) = (epsilons(name, compositions, delta) for name in ("rdp", "pld"))
    closely = [each for each, epsilon in zip(classes, by_pld, strict=True) if epsilon is not None]
    numbers = {"rdp": rdp, "pld": pld, "coarse": max(coarse(each.composition, delta) for each in closely)}
    edge, row = accounts.place_of(int(classes[by_rdp.index(rdp)].devices[0]))
    subnet = next(each for each in run.topology.subnets if each.name == edge)
    judged = verdict(run, observer, claimed, min(rdp, pld))
    return {**numbers, "verdict": judged, "device": subnet.device_name(row)}


def planned_claim(run: RunSetup, accounts: Accounts) -> float | None:
    """What is claimed of the planned run, which will hold these accounts."""
    assert run.noise is not None, "nothing is claimed where nothing is promised"
    intervals = run.config.training.intervals
    local = len(run.aggregation_times.offsets(run.local_steps)) * intervals
    counts = tier_aggregations(run.aggregation_times, run.topology, run.local_steps)
    tiers = {tier: count * intervals for tier, count in counts.items()}
    return run.noise.claimed(accounts, AggregationCounts(local, intervals, run.beyond_formulas, tiers))


def noises(run: RunSetup) -> list[dict[str, Any]]:
    """A row for each edge server and kind of release: who adds noise, and the first interval's standard deviations.

    They are those of an interval in which nothing fails; who averages fewer devices adds more.
    """
    if run.noise is None:
        return []
    # By what the ledger calls them: where local and global releases are alike, one row says it.
    every = first_interval(run).noises(run.noise, run.blueprint.facts)
    levels = {(edge, kind): (source, of) for edge, source, kind, of in every if of.size}
    shared = {facts.name for facts in run.blueprint.facts if facts.shares_noise}
    return [
        {
            "edge": edge,
            "added_by": "the devices, each a share" if edge in shared else ADDED_BY[source],
            "kind": kind,
            "noise_std": float(of.max()),
            "smallest": float(of.min()),
        }
        for (edge, kind), (source, of) in levels.items()
    ]


def claim_warning(setup: RunSetup) -> str | None:
    """A sentence about the observers whose accounts will exceed the claim; None where none will, or nothing is claimed.

    It is a quick estimate, which takes all intervals to be like the first.
    """
    if setup.noise is None or setup.leaks or setup.target is not None:
        return None
    if setup.traits.counts_iterations:
        setup = exhausted(setup)
    accounts = rough_accounts(setup)
    claimed = planned_claim(setup, accounts)
    if claimed is None:
        return None
    delta, unmet = setup.config.privacy.delta, []
    for observer in setup.observers:
        rdp = accounts.worst(observer, delta)
        if rdp is not None and rdp > claimed:  # only then `pld`, which takes longer
            pld = worst_epsilon(accounts, observer, delta, "pld")
            epsilon = rdp if pld is None else min(rdp, pld)
            unmet += [f"{observer} {epsilon:.3g}"] if epsilon > claimed else []
    if not unmet:
        return None
    hint = "see h2fdp privacy calibrate; privacy.calibration: accounted adds the noise that it takes"
    about = f"the account of the planned run is about: {', '.join(unmet)} (pld)"
    return f"epsilon {claimed:.4g} is claimed, but {about}; {hint}"


_PROCESS_BYTES = 350_000_000  # a process that has imported torch and has Ray's or our own parts, too


def estimate(run: RunSetup) -> dict[str, Any]:
    """The plan of a run, with estimates of time and memory; a few local steps are timed for the first one.

    `privacy` is the `privacy_report` of the planned run, None where there is no guarantee or the run leaks.
    """
    work, hosts = planned_work(run), inline_workers(run.config.runtime)
    privacy = None if run.noise is None or run.leaks else privacy_report(run)
    summed = sum(part.masked for part in first_interval(run).subnets.values())
    return {
        "method": name_of(run.config.method),
        "backend": chosen_backend(run.config.runtime),
        "engine": run.blueprint.engine,
        "devices": run.drawn.devices,
        "edge servers": run.shown.edges,
        "trusted": sum(subnet.trusted for subnet in run.topology.subnets),
        **({"relays": run.shown.edges} if run.topology.relayed else {}),
        **({"secure sums": summed} if summed else {}),
        "records a device": f"{run.data.sizes.min()} to {run.data.sizes.max()}",
        "model parameters": run.initial.numel(),
        **({"control": "a forecast that assumes the controller learns nothing"} if run.traits.controlled else {}),
        "slots": work.slots,
        "local aggregations": work.local_aggregations,
        "global aggregations": work.intervals,
        "device steps": work.steps,
        "network": work.costs,
        "time": f"about {seconds_per_step(run) * work.steps / hosts:.0f} s of training",
        "memory": f"about {(_PROCESS_BYTES * (1 + hosts) + 3 * run.blueprint.data_bytes) / 1e9:.1f} GB",
        "privacy": privacy,
        "leaking": run.leaks,
        "noises": noises(run) if privacy is None else privacy["noises"],
    }


_STEPS, _REPEATS = 5, 3
_MOST_DEVICES = 50  # that are timed together


def seconds_per_step(run: RunSetup) -> float:
    """Median time of a local step of one device of the first subnet, without its noise."""
    blueprint = run.blueprint
    with run_arithmetic():
        group = blueprint.device_group(0)
        rows = np.arange(min(blueprint.topology.subnets[0].size, _MOST_DEVICES))
        steps = _STEPS if blueprint.epochs is None else run.local_steps  # epochs are drawn as a whole
        batches = group.sampler.draw(0, range(steps), rows)
        adaptive = blueprint.adaptive
        starts = run.initial.to(blueprint.device).expand(len(rows), -1)
        nothing_yet = None if blueprint.objective.memory is None else torch.zeros_like(starts)
        terms = StepTerms(corrections=nothing_yet, clip_norm=None if adaptive is None else adaptive.initial)
        times = []
        for _ in range(1 + _REPEATS):
            started = time.perf_counter()
            group.engine.train(starts, group.records, rows, batches, 0.01, terms).updates.cpu()
            times.append(time.perf_counter() - started)
    return statistics.median(times[1:]) / (steps * len(rows))  # the first call warms caches


def costs_in_words(costs: Mapping[str, Any]) -> dict[str, str]:
    """Rows of the terminal about `PlannedWork.costs`."""
    near = nearness(costs)
    why = {"at most": "; less if the run ends early", "forecast": "; the schedule decides during the run"}
    delay, clock = f"{costs['delay_s']:.4g} s summed over devices", f"{costs['clock_s']:.4g} s on a simulated clock"
    return {
        "energy": f"{near}{costs['energy_j']:.4g} J{why.get(costs['kind'], '')}",
        "delay": f"{near}{delay}; {clock}",
        "sent up": f"{near}{costs['bytes'] / 1e6:.4g} MB by devices and edge servers",
    }


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
        weighed: joules and seconds of the interval, and noise as a share of the way; None under Algorithm 1.
        multipliers: what a joule and a second weigh; None under Algorithm 1.
        power_dbm: the least, mean and most dBm of all devices under the channels of the first interval; None where
            each sends with its own power.
        stated: whether the experiment asks for this controller; where it does not, its own schedule decides in a run.
        network: what the whole run under this controller is expected to cost, see `PlannedWork.costs`.
        chosen: what the file leaves open, in words.
    """

    tau: int
    participation: dict[str, int]
    objective: float
    terms: ObjectiveTerms
    runner_up: dict[str, float] | None
    constants: dict[str, float | None]
    edges: dict[str, dict[str, Any]]
    weighed: dict[str, float] | None
    multipliers: dict[str, float] | None
    power_dbm: dict[str, float] | None
    stated: bool
    network: dict[str, Any]
    chosen: tuple[str, ...]

    def _repr_html_(self) -> str:
        """For notebooks: tau, who takes part, and what the objective is made of."""
        constants = [f"{name} {word(value)}" for name, value in self.constants.items() if value is not None]
        terms = ", ".join(f"{name} {value:.4g}" for name, value in vars(self.terms).items())
        objective = f"{self.objective:.4g}: {terms} (weighted)"
        facts = {"tau": self.tau, "objective": objective, "constants": ", ".join(constants)}
        rows = [{"edge server": name, "devices that take part": count} for name, count in self.participation.items()]
        return facts_html("the controller's first decision", facts, table_html("", rows, most=10))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def first_decision(run: RunSetup, *, stated: bool = True) -> FirstDecision:
    """See `h2fdp.plan`."""
    if run.config.control.is_algorithm_1:
        section = run.config.control.model_copy(update={"channel": "expected"})
        schedule = H2fdpController.of(replace(run.context, control=section))
        costs = run.costs.expected()
        edges, decision = schedule.edges(costs), schedule.decide(0, 0)
    else:
        planned = run.schedule()
        assert isinstance(planned, TurnsController), "budgets and targets have a controller of their own"
        edges, decision = _edges(run), planned.decide(0, 0)
    subnets, why = run.topology.subnets, decision.reasons
    assert why is not None, "a controller says why"
    return FirstDecision(
        tau=decision.local_steps,
        participation=dict(zip((each.name for each in subnets), decision.participation.tolist(), strict=True)),
        objective=why["objective"],
        terms=ObjectiveTerms(**why["terms"]),
        runner_up=why["runner_up"],
        constants=why["constants"],
        edges={each.name: {"trust": each.trust, **edges[each.name]} for each in subnets},
        weighed=why.get("weighed"),
        multipliers=why.get("multipliers"),
        power_dbm=range_of(run.costs.drawn(0).power_dbm) if run.costs.chooses_power else None,
        stated=stated,
        network=planned_work(run).costs,
        chosen=tuple(run.chosen),
    )


def _edges(run: RunSetup) -> dict[str, dict[str, float | bool]]:
    """Edge server -> what is known of it, and what a message of its devices costs on average in the first interval."""
    costs = run.costs.drawn(0)
    places = np.cumsum(run.context.sizes) - run.context.sizes
    joules, seconds = (np.add.reduceat(of, places) / run.context.sizes for of in (costs.joules, costs.seconds))
    return {
        subnet.name: {
            "one_noise": bool(run.context.one_noise[row]),
            "devices": int(run.context.participation[row]),
            "device_joules": float(joules[row]),
            "device_seconds": float(seconds[row]),
        }
        for row, subnet in enumerate(run.topology.subnets)
    }
