"""The preview of a run before it starts: its account, its costs, what a user may have overlooked.

`run --dry-run` and `privacy calibrate` show it; nothing is trained.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from h2fdp.arithmetic import run_arithmetic
from h2fdp.config import Section
from h2fdp.config.own_parts import OwnPart
from h2fdp.costs.kinds import extras_in_words
from h2fdp.data.augmentation import KEY as AUGMENT
from h2fdp.data.augmentation import Variants
from h2fdp.errors import UserError
from h2fdp.methods import name_of
from h2fdp.models.registry import start_of
from h2fdp.network.network import COLUMNS
from h2fdp.privacy import ADDED_BY, Accounts, AggregationCounts, Observer
from h2fdp.privacy.accounting import coarse
from h2fdp.privacy.mechanisms.hierarchical import GradientNoise
from h2fdp.privacy.own_targets import EPSILON, of_targets
from h2fdp.privacy.statement import epsilons, worst_epsilon
from h2fdp.protocol.subnet_facts import tier_aggregations
from h2fdp.run.forecast import (
    exhausted,
    first_interval,
    forecast,
    nearness,
    planned_accounts,
    planned_work,
    rough_accounts,
)
from h2fdp.run.live_accounts import notes, verdict
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.placement import inline_workers, packed
from h2fdp.schedules import AggregationTimes
from h2fdp.training.local_steps import StepTerms, comparison_of
from h2fdp.wording import counted

LEAKS = "devices send raw measurements for the schedule; no epsilon covers that"


def privacy_report(run: RunSetup) -> dict[str, Any]:
    """The planned epsilons of each observer, each about the device that is worst by it; and all noises.

    `claimed` is the paper's formula, `rdp` and `pld` upper bounds by the mixture of the specification, `coarse` the
    subsampled Gaussian of the whole upload. The verdict is about the claim, or about the `target` where noise was
    calibrated to an account: *met* when the smaller upper bound is at most that, *open* otherwise; *trusted*, *nothing
    released* and *not targeted* say themselves why there is none.

    Raises:
        UserError: the method adds no noise.
    """
    if run.noise is None:
        text = f"expected a method that adds noise, as h2fdp; found {name_of(run.config.method)}, which adds none"
        raise UserError(text, key="method")
    if run.leaks:
        raise UserError(LEAKS, key="method.schedule")
    accounts = planned_accounts(run)
    claimed = planned_claim(run, accounts)
    known = run.targets, run.config.privacy.delta, run.accountant, run.target_observers
    return {
        "delta": run.config.privacy.delta,
        "adjacency": run.config.privacy.adjacency,
        "factor": run.factor,
        "target": run.target,
        "observers": {
            each: {"claimed": claimed, **_numbers(run, accounts, each, claimed)} for each in accounts.reported
        },
        "noises": noises(run),
        "targets": [] if run.target is None else of_targets(accounts.held(), *known),
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
    """The epsilon claimed of the planned run, which will have these accounts."""
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
    summed = sum(part.tasks.masked for part in first_interval(run).subnets.values())
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
        "memory": f"about {_bytes(run, hosts) / 1e9:.1f} GB",
        "privacy": privacy,
        "leaking": run.leaks,
        "noises": noises(run) if privacy is None else privacy["noises"],
    }


# Copies at once of a model on a host, and of what a device keeps (stored, on its way there and back, in a checkpoint):
# 7.9 of 400 devices under scaffold, 7.6 of 2,000.
_COPIES, _COPIES_KEPT = 4, 8


def _bytes(run: RunSetup, hosts: int) -> float:
    """The bytes that all processes of a run take at its most, roughly."""
    values = _COPIES * (1 + hosts) * run.initial.numel() + _COPIES_KEPT * run.drawn.devices * run.blueprint.remembers
    return _PROCESS_BYTES * (1 + hosts) + 3 * run.blueprint.data_bytes + 4 * values


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
        starts = run.initial.to(blueprint.device).expand(len(rows), -1)
        nothing_yet = None if blueprint.descent.objective.memory is None else torch.zeros_like(starts)
        variants = None
        if group.augment is not None:
            names = list(map(group.device_name, rows.tolist()))
            variants = Variants(group.augment, group.streams, names, interval=0, first_slot=0)
        terms = StepTerms(nothing_yet, variants=variants)
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
        "energy": f"{near}{costs['energy_j']:.4g} J{extras_in_words(costs)}{why.get(costs['kind'], '')}",
        "delay": f"{near}{delay}; {clock}",
        "sent up": f"{near}{costs['bytes'] / 1e6:.4g} MB by devices and edge servers",
    }


def notices(setup: RunSetup) -> list[str]:
    """Sentences; none for most runs."""
    claim = claim_warning(setup)
    return [*without_effect(setup), *([] if claim is None else [claim])]


def without_effect(setup: RunSetup) -> list[str]:
    """A sentence about each thing that was stated and that this run does not read, or not as it was stated."""
    found = [
        _of_trust,
        _asked,
        _unread,
        _of_batteries,
        _of_hosts,
        _of_parts,
        _unvaried,
        _capped,
        _idle,
        _featureless,
        _baseless,
    ]
    return [line for of in found for line in of(setup)]


def _unvaried(setup: RunSetup) -> Iterator[str]:
    """Variants of images that are all the image itself."""
    if getattr(setup.config.data, "augment", None) is not None and setup.blueprint.augment is None:
        yield f"{AUGMENT} has no effect: it states neither flip nor crop"


def _of_trust(setup: RunSetup) -> Iterator[str]:
    """Edge servers, or a cloud, that see more or less than their trust says. What is drawn by chance is no statement,
    but that untrusted servers see raw updates is said; `experiment.network` refuses it of trust that is stated."""
    placement, drawn, method = setup.placement, setup.drawn, name_of(setup.config.method)
    levels = [server.trust for server in drawn.servers()]
    untrusted, above = sum(trust != "trusted" for trust in levels), sum(trust != "untrusted" for trust in levels)
    star, stated = setup.config.method.topology == "star", drawn.states_trust
    if "cloud" in placement.trusted and not star:
        if untrusted:
            yield f"your {untrusted} untrusted edge servers see raw updates: privacy {placement.name} trusts them"
    elif not placement.private and stated and not star:
        yield f"trust has no effect: {method} adds no noise, and all {len(levels)} edge servers see raw updates"
    elif stated and above and (star or placement.place(("trusted",), 1) == placement.place(("untrusted",), 1)):
        why = "in a star they pass messages on" if star else f"under privacy {placement.name} all devices add noise"
        yield f"the trust in {counted(above, 'edge server')} has no effect: {why}"
    if drawn.cloud_trust == "secure-sum" and placement.sees("secure-sum") == "each":
        yield f"topology.cloud.trust has no effect: privacy {placement.name} has no secure sums"


def _asked(setup: RunSetup) -> Iterator[str]:
    """Warnings about epsilons of devices that bind nothing."""
    stated, of_all = setup.drawn.table.columns.get(EPSILON, np.zeros(0)), setup.config.privacy.epsilon
    asked = stated[stated < COLUMNS[EPSILON].default]
    if asked.size and setup.target is None:
        yield "devices.epsilon has no effect: no noise of this run is made for a target"
    elif above := int((asked >= of_all).sum()):
        yield f"devices.epsilon of {counted(above, 'device')} has no effect: they are held to the run's, {of_all:g}"


def _of_batteries(setup: RunSetup) -> Iterator[str]:
    """Devices whose batteries end before the run does, as they are foreseen."""
    if (batteries := setup.faults.batteries) is None:
        return
    gone, ends, intervals = batteries.full.gone, list[int](), 0
    for expected in forecast(setup):
        assert expected.plan.charge is not None, "devices have batteries"
        now = expected.plan.charge.gone
        ends += [intervals] * int((now & ~gone).sum())
        gone, intervals = now, intervals + 1
    if ends:
        text = f"batteries of {len(ends)} of {counted(len(gone), 'device')} end before the run does"
        yield f"{text}: the first after {counted(ends[0], 'interval')}, the last after {ends[-1]}"


def _unread(setup: RunSetup) -> Iterator[str]:
    """Keys that differ from their defaults, and that the method, its schedule or this training does not read."""
    config, training, placement, found = setup.config, setup.config.training, setup.placement, dict[str, list[str]]()
    if not placement.private:
        epsilon = ["privacy.epsilon"] if "epsilon" in config.privacy.model_fields_set else []
        why = f"the method {name_of(config.method)} adds no noise"
        found[why] = epsilon + _stated("privacy", config.privacy, _OF_ACCOUNTS)
    elif not isinstance(placement, GradientNoise):
        unread = ("sensitivity",) if "cloud" in placement.trusted else ("sensitivity", "c2")
        found[f"privacy {placement.name} has a formula without it"] = _stated("privacy", config.privacy, unread)
    own_schedule, control = isinstance(config.method.schedule, OwnPart), config.control
    if not (setup.traits.controlled or own_schedule or "enabled" in control.model_fields_set):
        others = [key for key in type(control).model_fields if key not in ("least_dbm", "least_ghz")]
        found["control.enabled is false"] = _stated("control", control, others)
    if training.clip_norm is None:
        found["nothing is clipped"] = _stated("training", training, ("clip_scope",))
    every, stated = training.aggregate_every, training.stated & set(_TIMES)
    times = AggregationTimes(
        min(every.values()) if isinstance(every, dict) else every, training.aggregations_per_interval
    )
    if setup.topology.subnets[0].relays is not None and stated and times.offsets(setup.local_steps):
        found["no edge server averages between two models of the cloud"] = [f"training.{key}" for key in sorted(stated)]
    alone = {max(setup.aggregation_times.of(each.name).segments(setup.local_steps)) for each in setup.topology.subnets}
    if alone == {1} and not setup.traits.varies_tau:
        begins = _stated("training", training, ("momentum",))
        begins += ["method.objective: proximal"] if config.method.objective.name == "proximal" else []
        found["devices take one step from each model that they receive, and it begins with the second"] = begins
    for why, keys in found.items():
        if keys:
            yield f"{', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect: {why}"


_OF_ACCOUNTS = ("delta", "adjacency", "sensitivity", "c2", "target_observers", "budget")
_TIMES = ("aggregate_every", "aggregations_per_interval")


def _stated(name: str, section: Section, keys: Sequence[str]) -> list[str]:
    """The keys among these whose value is not the default, with the section's name."""
    fields = type(section).model_fields
    other = [key for key in keys if getattr(section, key) != fields[key].get_default(call_default_factory=True)]
    return [f"{name}.{key}" for key in other if key in section.model_fields_set]


def _of_hosts(setup: RunSetup) -> Iterator[str]:
    """More hosts than there are subnets, or devices of large ones, to put on them."""
    runtime = setup.config.runtime
    if runtime.hosts == "auto" or chosen_backend(runtime) != "ray":
        return
    if (used := len(packed(setup.topology.sizes, runtime.hosts))) < runtime.hosts:
        yield f"runtime.hosts: {runtime.hosts} is {used}: there are no more devices, or subnets of about a host's share"


def _of_parts(setup: RunSetup) -> Iterator[str]:
    """Parts of the network that nothing comes of in so many intervals."""
    for key, part in setup.drawn.parts.items():
        if why := part.idle(setup.config.training.intervals):
            yield f"{key} has no effect: {why}"


def _featureless(setup: RunSetup) -> Iterator[str]:
    """An objective that compares models by features, with a model that has none: they are the records themselves."""
    objective = setup.config.method.objective
    if comparison_of(setup.blueprint.descent.objective) is None:
        return
    if sum(any(True for _ in layer.parameters(recurse=False)) for layer in setup.blueprint.module().modules()) == 1:
        text = f"method.objective: {objective.name} has no effect with the model {setup.config.model.name}"
        yield f"{text}, which has no hidden layers: what enters its last layer is the same under all models"


def _capped(setup: RunSetup) -> Iterator[str]:
    """A stated batch that is larger than the data of a device."""
    training, least = setup.config.training, int(setup.data.sizes.min())
    if "batch_size" in training.model_fields_set and (training.batch_size or 0) > least:
        text = f"training.batch_size: {training.batch_size} is more than the {least} records of the smallest device"
        yield f"{text}; such devices use all their records at each step"


def _baseless(setup: RunSetup) -> Iterator[str]:
    """A frozen rest that no file has."""
    model = setup.config.model
    if not isinstance(model, OwnPart) and (model.train or model.lora) and start_of(model) is None:
        yield "model.train and model.lora freeze random numbers: no model.from names a file with those of a base"


def _idle(setup: RunSetup) -> Iterator[str]:
    """More turns than an edge server has devices."""
    turns, subnets = setup.config.training.turns, setup.topology.subnets
    if idle := [each.name for each in subnets if each.size < turns]:
        text = f"training.device_turns: {turns} is more than the devices of {len(idle)} of {len(subnets)} edge servers"
        yield f"{text} ({idle[0]} first), none of which take part in some intervals"
