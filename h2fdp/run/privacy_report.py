"""What the planned run gives each observer: all numbers; a warning where the account will not confirm the claim; and
in a few lines, who learns what, by which bound and noise, its cost, what would pay most.

What pays is what `auto` would choose in place of what a file states, at the same epsilon. Compared is how far the noise
in the last model moves its scores, which needs no accuracy: where it is far above 1, noise decides what the model says;
where it is far below, a longer way would learn more.
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from h2fdp.errors import UserError
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.models.registry import Auto
from h2fdp.privacy import ADDED_BY, Accounts, AggregationCounts, Observer, Release
from h2fdp.privacy.accounting import ACCOUNTANTS, coarse
from h2fdp.privacy.calibration import Composition, smallest_factor
from h2fdp.privacy.places import height_of
from h2fdp.privacy.statement import MOST_LISTED, epsilons, worst_epsilon
from h2fdp.protocol.subnet_facts import tier_aggregations
from h2fdp.run.forecast import (
    first_interval,
    forecast,
    nearness,
    noise_on_model,
    planned_accounts,
    planned_work,
    rough_accounts,
)
from h2fdp.run.prepare import prepare
from h2fdp.run.recipe import has_rule, probe_of
from h2fdp.run.setup import RunSetup

LEAKS = "oracle sends raw estimates to the cloud and on untrusted ways; no epsilon covers that"
_NEARLY_ALL = 0.9  # of the noise


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
        "observers": {each: {"claimed": claimed, **_numbers(run, accounts, each, claimed)} for each in run.observers},
        "noises": noises(run),
        "decides": who_decides(run, accounts),
        "iterations": run.iterations,
        "notes": list(run.notes),
    }


def who_decides(run: RunSetup, accounts: Accounts) -> str | None:
    """A sentence about who decides the common factor on all noises: the edge server whose devices need the most noise,
    or else the observer; and who alone would need least. None where none would need less than nine tenths.

    Args:
        accounts: of the planned run.
    """
    if run.target is None or run.topology.devices > MOST_LISTED:
        return None
    accountant, delta = ACCOUNTANTS[run.accountant], run.config.privacy.delta
    parts: dict[str, dict[str, list[Composition]]] = {"edge server": defaultdict(list), "observer": defaultdict(list)}
    for observer in run.target_observers:
        for each in accounts.classes(observer):
            for edge in {accounts.place_of(int(device))[0] for device in each.devices}:
                parts["edge server"][edge].append(each.composition)
            parts["observer"][observer].append(each.composition)
    for kind, groups in parts.items():
        found = {name: epsilons(run.accountant, of, delta)[1] for name, of in groups.items()}
        most, least = (choose(found, key=found.__getitem__, default="") for choose in (max, min))
        if most == least:
            continue
        allowed = run.target / (1 + accountant.spread)
        needed = smallest_factor(groups[least], allowed, lambda each: accountant.epsilon(each, delta))
        if needed <= _NEARLY_ALL:
            return f"{kind} {most} decides the noise: {least} alone would need {1 / needed:.2g} times less"
    return None


def _numbers(run: RunSetup, accounts: Accounts, observer: Observer, claimed: float | None) -> dict[str, Any]:
    delta = run.config.privacy.delta
    classes = list(accounts.classes(observer))
    if not classes:
        empty = dict.fromkeys(("rdp", "pld", "coarse"))
        return {**empty, "verdict": run.placement.silence(observer), "device": None}
    compositions = [each.composition for each in classes]
    (by_rdp, rdp), (by_pld, pld) = (epsilons(name, compositions, delta) for name in ("rdp", "pld"))
    closely = [each for each, found in zip(classes, by_pld, strict=True) if found is not None]
    numbers = {"rdp": rdp, "pld": pld, "coarse": max(coarse(each.composition, delta) for each in closely)}
    edge, row = accounts.place_of(int(classes[by_rdp.index(rdp)].devices[0]))
    subnet = next(each for each in run.topology.subnets if each.name == edge)
    verdict = run.verdict(observer, claimed, min(rdp, pld))
    return {**numbers, "verdict": verdict, "device": subnet.device_name(row)}


def planned_claim(run: RunSetup, accounts: Accounts) -> float | None:
    """What is claimed of the planned run, which will hold these accounts."""
    assert run.noise is not None, "nothing is claimed where nothing is promised"
    intervals = run.config.training.intervals
    local = len(run.aggregation_times.offsets(run.local_steps)) * intervals
    counts = tier_aggregations(run.aggregation_times, run.topology, run.local_steps)
    return run.noise.claimed(
        accounts, AggregationCounts(local, intervals, tiers={tier: count * intervals for tier, count in counts.items()})
    )


def noises(run: RunSetup) -> list[dict[str, Any]]:
    """A row for each edge server and kind of release: who adds noise, and the first interval's standard deviations.

    They are those of an interval in which nothing fails; who averages fewer devices adds more.
    """
    # By what the ledger calls them: where local and global releases are alike, one row says it.
    levels = {(edge, kind): (source, of) for edge, source, kind, of in run.noises_of(first_interval(run)) if of.size}
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
        setup = setup.exhausted()
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


_NEARER = 0.2  # in logarithms, to a noise that moves scores by 1


def noise_in_scores(setup: RunSetup) -> float:
    """By how much the noise in the last model moves its scores: a standard deviation, to first order."""
    probe = probe_of(setup.blueprint.module(), setup.data, setup.config)
    return noise_on_model(setup).noise_std * probe.reach


def comparable(setup: RunSetup) -> bool:
    """Whether the noise of other settings can be calibrated before the run, by an account."""
    if setup.noise is None or setup.leaks or not setup.placement.accounted:
        return False
    return setup.traits.foreseen and not setup.traits.controlled and not setup.traits.varies_tau


def changes(setup: RunSetup) -> list[dict[str, Any]]:
    """Training alone, and training with the model, left to `auto`, where that pays: noise is nearer to what it should
    be, or messages cost less, or the model is another. Empty where there is no rule for the method.

    Returns:
        Of each: `sections`, the names of those that are left open; `scores`, by how much noise would then move scores;
        `energy_j` of all messages; `chosen`, what these sections would become, in words.
    """
    training = {"training": TrainingSection.model_validate({"extends": "auto"})}
    if not comparable(setup) or not has_rule(setup.config.model_copy(update=training)):
        return []
    now, joules, found = noise_in_scores(setup), planned_work(setup).costs["energy_j"], []
    asked: list[dict[str, Any]] = [training]
    if setup.image_shape is None and setup.standardizing is None:
        asked.append(training | {"model": Auto.model_validate({})})
    for sections in asked:
        config = setup.config.model_copy(update=sections)
        try:
            other = prepare(config, setup.drawn, data_source=lambda *_: setup.data)
        except UserError:  # outside what the method is made for
            continue
        scores, energy_j = noise_in_scores(other), planned_work(other).costs["energy_j"]
        nearer = abs(math.log(scores)) < abs(math.log(now)) - _NEARER
        if nearer or energy_j < 0.9 * joules or other.config.model != setup.config.model:
            change = {"sections": tuple(sections), "scores": scores, "energy_j": energy_j, "chosen": other.chosen}
            found.append(change)
    return found


WIDTH, LINES = 80, 16


def explanation(run: RunSetup) -> dict[str, Any]:
    """What `h2fdp privacy explain` says.

    Returns:
        `lines`: at most 16, of at most 80 columns, with what was chosen for the run; `observers`: what each `sees`, and
        its accounted `epsilon`, the smaller of two upper bounds on the worst device, None without an account, `by`
        which; `bound`, `sensitivity`, `steps` of the release with the least noise for its sensitivity; `noises`,
        `decides`, see `privacy_report`; `network`, see `PlannedWork.costs`; `noise_on_model`: `noise_std`, `way`,
        `per_step`, see `NoiseOnModel`, and `scores`, see `noise_in_scores`; `pays`, see `changes`.

    Raises:
        UserError: the method adds no noise, or leaks.
    """
    report = privacy_report(run)
    learned: dict[Observer, dict[str, Any]] = {}
    for observer, numbers in report["observers"].items():
        known = {name: numbers[name] for name in ("pld", "rdp") if numbers[name] is not None}
        by = min(known, key=known.__getitem__, default=None)
        learned[observer] = {"sees": _sees(run, observer), "epsilon": by and known[by], "by": by}
    costly, model, network = costliest_release(run), noise_on_model(run), planned_work(run).costs
    by = " or ".join(sorted({each["by"] for each in learned.values() if each["by"]}))
    unit = "a whole device" if run.placement.clips == "update" else f"one record ({run.config.privacy.adjacency})"
    public = "" if run.data.public is None else f", {len(run.data.public)} public"
    about = f"what is learned about {unit}, delta {run.config.privacy.delta:g}{public}{f', by {by}' if by else ''}"
    lines = [f"{about} ({run.config.name})", *_of_observers(learned), _of_bound(costly)]
    if (adaptive := run.blueprint.adaptive) is not None:
        way = f"clip norm: from {adaptive.initial:g} towards the {adaptive.quantile:g}-quantile"
        lines.append(f"{way}; votes about it cost {100 * adaptive.share:.3g} % of 1/z^2")
    lines += [_of_noises(report["noises"]), _of_costs(network), report["decides"] or "", *run.chosen]
    scores, pays = noise_in_scores(run), changes(run)
    lines.append(f"noise moves the last model's scores by {scores:.3g}; about 1 is best")
    if pays:
        best, joules = pays[-1], f"{network['energy_j']:.3g} J"
        then = f"then {best['scores']:.2g}, and {best['energy_j']:.3g} J for {joules}"
        lines.append(f"what pays most: {' and '.join(best['sections'])}: auto; {then}")
        lines += [f"  {each.removeprefix('chosen: ')}" for each in best["chosen"][:2]]
    if not comparable(run):
        lines.append("other settings cannot be compared: no account of them is known before the run")
    return {
        "lines": [textwrap.shorten(line, WIDTH, placeholder=" ...") for line in lines if line],
        "observers": learned,
        **{key: costly and getattr(costly, key) for key in ("bound", "sensitivity", "steps")},
        "noises": report["noises"],
        "decides": report["decides"],
        "network": network,
        "noise_on_model": {**vars(model), "per_step": model.per_step, "scores": scores},
        "pays": pays,
    }


def costliest_release(run: RunSetup) -> Release | None:
    """The release of the first interval with the least noise for its sensitivity, if nothing fails in it; None where
    there is none."""
    rows = [row for alike in next(forecast(run.without_faults())).releases() for row in alike.releases]
    noisy = [row for row in rows if row.kind != "estimate"]
    return min(noisy, key=lambda row: row.noise_std / row.sensitivity, default=None)


def _sees(run: RunSetup, observer: Observer) -> str:
    """In words what reaches an observer."""
    subnets = run.blueprint.facts
    noisy = [each for each in subnets if each.adds_noise == "device"]
    if observer == "public":
        return "global models"
    if observer == "peer":
        return "averages and global models, and knows its own noise"
    if observer in run.placement.trusted and not noisy:
        return "raw updates: it is trusted"
    if observer == "edge" or (observer == "cloud" and run.config.method.topology == "star"):
        raw = len(subnets) - len(noisy)
        seen = _of_devices(run, {each.shares_noise for each in noisy})
        return seen + (f" ({raw} of {len(subnets)} edge servers trusted)" if raw else "")
    if height_of(observer) > 1:
        summed = sum(each.trust == "secure-sum" for each in run.topology.aggregators)
        return "averages of branches" + (f" ({summed} of these edge servers: their sum alone)" if summed else "")
    if run.placement.cloud_sums:
        return "the sum of what its children send, and global models"
    return "averages of subnets and global models"


def _of_devices(run: RunSetup, sums: set[bool]) -> str:
    """What an edge server sees of devices that add noise; `sums`: whether their sums alone."""
    if sums == {True}:
        return "the noisy sum of its devices"
    single = "each noisy step" if run.placement.clips == "record" else "each noisy upload"
    return f"{single}, or the sum alone" if True in sums else f"{single} of a device"


def _of_observers(learned: Mapping[Observer, Mapping[str, Any]]) -> list[str]:
    """At most four lines: tiers together, public with the cloud where it learns as much."""
    lines = {}
    for name, each in learned.items():
        known = "no account" if each["epsilon"] is None else f"epsilon {each['epsilon']:.3g}"
        lines[name] = f"{name}: {known}; {each['sees']}"
    if tiers := [name for name in learned if height_of(name) > 1]:
        epsilon = max(learned[name]["epsilon"] or 0.0 for name in tiers)
        lines = {name: line for name, line in lines.items() if name not in tiers[1:]}
        lines[tiers[0]] = f"{tiers[0]}..: epsilon {epsilon:.3g} at most; averages of branches"
    if learned["cloud"]["epsilon"] == learned["public"]["epsilon"]:
        lines["cloud"] = lines["cloud"].replace("cloud:", "cloud, public:", 1)
        del lines["public"]
    return list(lines.values())[-4:]


def _of_bound(release: Release | None) -> str:
    if release is None:
        return "bound: nothing leaves those who may see raw updates"
    moves = {
        "step": "a record moves the sum of a step's gradients",
        "central": "a device moves the global average",
        "output": "a record moves a device's clipped model",
    }
    several = f"{release.steps} step{'s' if release.steps > 1 else ''}"
    what = moves.get(release.kind, f"a record moves {several}")
    return f"bound {release.bound}: {what} by at most {release.sensitivity:.3g}"


def _of_noises(levels: Sequence[dict[str, Any]]) -> str:
    """The largest standard deviation of each kind."""
    largest: dict[str, dict[str, float]] = {}
    for row in levels:
        of_source = largest.setdefault(row["added_by"], {})
        of_source[row["kind"]] = max(of_source.get(row["kind"], 0.0), row["noise_std"])
    added = [" and ".join(f"{level:.3g}" for level in each.values()) + f" by {who}" for who, each in largest.items()]
    return "noise: " + ", ".join(added)


def _of_costs(network: Mapping[str, Any]) -> str:
    """What the network spends on the whole run."""
    seconds = f"delay {network['delay_s']:.4g} s, clock {network['clock_s']:.4g} s"
    joules, sent = f"{network['energy_j']:.4g} J", f"{network['device_bytes'] / 1e6:.4g} MB sent"
    return f"cost: {nearness(network)}{joules}, {seconds}, {sent}"
