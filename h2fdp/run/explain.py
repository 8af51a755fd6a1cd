"""The planned run explained: who learns what, by which bound and noise, its cost, what would pay most; the controller's
first decision.

What pays is what `auto` would choose in place of what a file states, at the same epsilon. Compared is how far the noise
in the last model moves its scores, which needs no accuracy: where it is far above 1, noise decides what the model says;
where it is far below, a longer way would learn more.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from h2fdp.costs.kinds import extras_in_words
from h2fdp.errors import UserError
from h2fdp.experiment.training_section import TrainingSection
from h2fdp.models.registry import Auto
from h2fdp.network import Trust
from h2fdp.privacy import Observer, Release
from h2fdp.privacy.own_targets import facts_of
from h2fdp.privacy.places import SINGLE_EDGE, height_of
from h2fdp.protocol.interval_plan import range_of
from h2fdp.run.forecast import forecast, nearness, noise_on_model, planned_work
from h2fdp.run.prelude import what_ranges_gain
from h2fdp.run.prepare import prepare, with_settings
from h2fdp.run.preview import privacy_report
from h2fdp.run.recipe import best_noise, has_rule, probe_of, settled
from h2fdp.run.setup import RunSetup
from h2fdp.schedules import H2fdpController
from h2fdp.schedules.problem import ObjectiveTerms
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.wording import facts_html, table_html, word

_NEARER = 0.2  # in logarithms, to a noise that moves scores by 1


def noise_in_scores(setup: RunSetup) -> float:
    """The standard deviation of the last model's scores under its noise, to first order."""
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
    left = TrainingSection.model_validate({"extends": "auto"})
    training = {"training": left.model_copy(update={"loss": setup.config.training.loss})}  # that of the labels
    if not comparable(setup) or not has_rule(setup.config.model_copy(update=training)):
        return []
    now, joules, found = noise_in_scores(setup), planned_work(setup).costs["energy_j"], []
    best = best_noise(setup.data.target)
    for sections in (training, training | {"model": Auto.model_validate({})}):
        config = setup.config.model_copy(update=sections)
        try:
            other = prepare(config, setup.drawn, data_source=lambda *_: setup.given)
        except UserError:  # outside what the method is made for
            continue
        scores, energy_j = noise_in_scores(other), planned_work(other).costs["energy_j"]
        nearer = abs(math.log(scores / best)) < abs(math.log(now / best)) - _NEARER
        if nearer or energy_j < 0.9 * joules or other.config.model != setup.config.model:
            change = {"sections": tuple(sections), "scores": scores, "energy_j": energy_j, "chosen": other.chosen}
            found.append(change)
    return found


_TRUSTS: Mapping[str, Trust] = {
    "all edge servers trusted": "trusted",
    "secure sums": "secure-sum",
    "one sum (relay: 1)": "relay",
}


def at_equal_epsilon(setup: RunSetup) -> list[dict[str, Any]]:
    """Alternatives to a run (other trust, more records, a larger epsilon), with the noise and the cost of each.

    Noise is calibrated anew to the target; nothing is trained. Empty where there is no account
    before the run, or the objective leaves no choice.

    Returns:
        For the run as it is, then for each alternative that can be stated and changes anything: `setting`; `scores`,
        by how much noise moves the scores of the model that the same way leads to; `energy_j` of all messages.
    """
    if not comparable(setup) or setup.target is None or settled(setup.config):
        return []
    now, left = noise_in_scores(setup), noise_on_model(setup).noise_std
    drawn, privacy = setup.drawn, setup.config.privacy
    joules, release = planned_work(setup).costs["energy_j"], costliest_release(setup)
    found = [{"setting": "as it is", "scores": now, "energy_j": joules}]
    others = {}
    for name, trust in _TRUSTS.items():  # as a file states it, so that what refuses such a file refuses it here
        subnets = tuple(replace(each, trust=trust) for each in drawn.subnets)
        above = tuple(replace(each, trust=trust) for each in drawn.aggregators)
        others[name] = replace(drawn, subnets=subnets, aggregators=above, trust_probability=None)
    more = privacy.model_copy(update={"epsilon": 2 * privacy.epsilon})
    for name, topology in (others | {f"epsilon {more.epsilon:g}": drawn}).items():
        config = setup.config.model_copy(update={"privacy": more}) if topology is drawn else setup.config
        try:
            other = with_settings(replace(setup, drawn=topology), config)
        except UserError:  # not under this trust
            continue
        noise_std, energy_j = noise_on_model(other).noise_std, planned_work(other).costs["energy_j"]
        if not np.allclose((noise_std, energy_j), (left, joules), rtol=1e-3, atol=0):  # no answer: trust in a star, say
            found.append({"setting": name, "scores": now * noise_std / left, "energy_j": energy_j})
    rated = setup.config.training.sampling_rate is not None
    if rated and release is not None and (release.bound, release.steps) == ("record", 1):  # it moves half as far
        found.append({"setting": "twice the records", "scores": now / 2, "energy_j": joules})
    return found


WIDTH = 80


def explanation(run: RunSetup) -> dict[str, Any]:
    """The contents of `h2fdp privacy explain`.

    Returns:
        `lines`: of at most 80 columns, with what was chosen for the run; `observers`: what each `sees`, and
        its accounted `epsilon`, the smaller of two upper bounds on the worst device, None without an account, `by`
        which; `bound`, `sensitivity`, `steps` of the release with the least noise for its sensitivity; `noises` and
        `targets`, see `privacy_report`; `network`, see `PlannedWork.costs`; `noise_on_model`: `noise_std`, `way`,
        `per_step`, see `NoiseOnModel`, and `scores`, see `noise_in_scores`; `pays`, see `changes`; `equal`, see
        `at_equal_epsilon`.

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
    unit = "a whole device" if run.placement.protects == "device" else f"one record ({run.config.privacy.adjacency})"
    public = "" if run.data.public is None else f", {len(run.data.public)} public"
    about = f"what is learned about {unit}, delta {run.config.privacy.delta:g}{public}{f', by {by}' if by else ''}"
    facts = [*facts_of(report["targets"]).items(), _of_bound(costly)]
    facts += [("noise", _of_noises(report["noises"])), *_of_messages(run), ("cost", _of_costs(network))]
    facts += [("" if at else "chosen", each.removeprefix("chosen: ")) for at, each in enumerate(run.chosen)]
    facts += [("" if at else "ranges", text) for at, text in enumerate(what_ranges_gain(run))]
    scores, pays = noise_in_scores(run), changes(run)
    moved = f"noise moves the last model's scores by {scores:.3g}; about {best_noise(run.data.target):g} is best"
    facts.append(("", "noise is in the sums that give the model") if settled(run.config) else ("in scores", moved))
    if pays:
        best, costs = pays[-1], network["energy_j"]
        now, then = [(f"{a:.2g}", f"{b:.3g} J") for a, b in ((scores, costs), (best["scores"], best["energy_j"]))]
        change = f"noise then moves scores by {then[0]}, for {then[1]} instead of {now[1]}"
        if now == then:
            change = "another model, under the same noise and for the same joules"
        facts.append(("pays most", f"{' and '.join(best['sections'])}: auto; {change}"))
        facts += [("", each.removeprefix("chosen: ")) for each in best["chosen"][: 4 if now == then else 2]]
    equal = at_equal_epsilon(run)
    less = [each for each in equal if each["setting"] in _TRUSTS and each["scores"] < scores]
    if less and not pays:
        best = min(less, key=lambda each: each["scores"])
        moved = f"noise then moves the same model's scores by {best['scores']:.2g}"
        facts.append(("pays most", f"{best['setting']}: {moved}"))
    if not comparable(run):
        facts.append(("", "other settings cannot be compared: no account of them is known before the run"))
    lines = textwrap.wrap(f"{about} ({run.config.name})", WIDTH, break_on_hyphens=False)
    lines += [*laid_out([("observer", "epsilon", "receives"), *_of_observers(learned)]), "", *laid_out(facts)]
    rows = [(each["setting"], f"{each['scores']:.2g}", f"{each['energy_j']:.3g} J") for each in equal]
    lines += ["", *laid_out([("the same way of training", "noise in scores", "messages"), *rows])] if rows else []
    return {
        "lines": lines,
        "observers": learned,
        **{key: costly and getattr(costly, key) for key in ("bound", "sensitivity", "steps")},
        "noises": report["noises"],
        "targets": report["targets"],
        "network": network,
        "noise_on_model": {**vars(model), "per_step": model.per_step, "scores": scores},
        "pays": pays,
        "equal": equal,
    }


def costliest_release(run: RunSetup) -> Release | None:
    """The release of the first interval with the least noise for its sensitivity, if nothing fails in it; None where
    there is none."""
    rows = [row for alike in next(forecast(run.without_faults())).releases() for row in alike.releases]
    return min(rows, key=lambda row: row.noise_std / row.sensitivity, default=None)


def _sees(run: RunSetup, observer: Observer) -> str:
    """The vectors that reach an observer, in words."""
    subnets = run.blueprint.facts
    noisy = [each for each in subnets if each.adds_noise == "device"]
    if observer == "public":
        return "global models"
    if observer == SINGLE_EDGE:
        return "that by one of these edge servers, and global models"
    if observer == "peer":
        return "averages and global models, and knows its own noise"
    if observer in run.placement.trusted and not noisy:
        return "raw updates: it is trusted"
    if run.blueprint.star and run.topology.relayed:
        return "masked vectors, and global models" if observer == "edge" else "the noisy sum of all devices"
    if observer == "edge" or (observer == "cloud" and run.config.method.topology == "star"):
        raw = len(subnets) - len(noisy)
        seen = _of_devices(run, {each.shares_noise for each in noisy})
        return seen + (f" ({raw} of {len(subnets)} edge servers trusted)" if raw else "")
    if height_of(observer) > 1:
        summed = sum(each.trust == "secure-sum" for each in run.topology.aggregators)
        return "averages of branches" + (f" ({summed} of these edge servers: their sum alone)" if summed else "")
    if run.placement.sees(run.topology.cloud_trust) == "sum":
        return "the sum of what its children send, and global models"
    return "averages of subnets and global models"


def _of_devices(run: RunSetup, sums: set[bool]) -> str:
    """The view that an edge server has of devices that add noise; `sums`: whether it sees their sums alone."""
    if sums == {True}:
        return "the noisy sum of its devices"
    single = "each noisy step" if run.placement.clips == "record" else "each noisy upload"
    return f"{single}, or the sum alone" if True in sums else f"{single} of a device"


def laid_out(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as lines of at most `WIDTH`: the last column wraps.

    >>> laid_out([("edge", "1", "uploads"), ("cloud", "0.5", "averages")])
    ['edge   1    uploads', 'cloud  0.5  averages']
    """
    widths = [max(map(len, column)) + 2 for column in zip(*(row[:-1] for row in rows), strict=True)]
    texts = ("".join(map(str.ljust, row, widths)) + row[-1] for row in rows)
    margin = " " * sum(widths)
    return [line for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent=margin)]


def _of_observers(learned: Mapping[Observer, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of observers, at most four: tiers together, public with the cloud where it learns as much."""
    rows: dict[Observer, tuple[str, ...]] = {}
    for name, each in learned.items():
        rows[name] = (name, "none" if each["epsilon"] is None else f"{each['epsilon']:.3g}", each["sees"])
    if tiers := [name for name in learned if height_of(name) > 1]:
        epsilon = max(learned[name]["epsilon"] or 0.0 for name in tiers)
        rows = {name: row for name, row in rows.items() if name not in tiers[1:]}
        rows[tiers[0]] = (f"{tiers[0]}..", f"{epsilon:.3g}", "averages of branches; the largest epsilon of these tiers")
    if learned["cloud"]["epsilon"] == learned["public"]["epsilon"]:
        rows["cloud"] = ("cloud, public", *rows["cloud"][1:])
        del rows["public"]
    return list(rows.values())[-4:]


def _of_bound(release: Release | None) -> tuple[str, str]:
    if release is None:
        return "bound", "nothing leaves those who may see raw updates"
    moves = {
        "step": "a record moves the sum of a step's gradients",
        "central": "a device moves the global average",
        "output": "a record moves a device's clipped model",
    }
    several = f"{release.steps} step{'s' if release.steps > 1 else ''}"
    by_kind = moves.get(release.kind, f"a record moves {several}")
    what = "a device moves what is seen" if release.bound == "update" and release.kind not in moves else by_kind
    return "bound", f"{release.bound}: {what} by at most {release.sensitivity:.3g}"


def _of_noises(levels: Sequence[dict[str, Any]]) -> str:
    """The largest standard deviation of each kind."""
    largest: dict[str, dict[str, float]] = {}
    for row in levels:
        of_source = largest.setdefault(row["added_by"], {})
        of_source[row["kind"]] = max(of_source.get(row["kind"], 0.0), row["noise_std"])
    return ", ".join(
        " and ".join(f"{level:.3g}" for level in each.values()) + f" by {who}" for who, each in largest.items()
    )


def _of_messages(run: RunSetup) -> list[tuple[str, str]]:
    """A row on what messages pass on their way, and on whether noise of others counts; empty where it is nothing."""
    messages = run.config.messages
    sent = zip(("devices", "edge servers"), messages.words, strict=False)
    links = "; ".join(f"{senders} {stated}" for senders, stated in sent if stated)
    hidden = all(each.keeps_sums for each in messages.devices.stages)
    hidden &= not (messages.edges.stages and run.topology.depth > 1)
    return [(messages.key, links + ("" if hidden else " (noise of others not credited)"))] if links else []


def _of_costs(network: Mapping[str, Any]) -> str:
    """The network's costs of the whole run, in words."""
    seconds = f"delay {network['delay_s']:.4g} s, clock {network['clock_s']:.4g} s"
    joules, sent = f"{network['energy_j']:.4g} J{extras_in_words(network)}", f"{network['bytes'] / 1e6:.4g} MB sent"
    return f"{nearness(network)}{joules}, {seconds}, {sent}"


@dataclass(frozen=True)
class FirstDecision:
    """The controller's decision for the first interval, with its reasons.

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
        """The view in notebooks: tau, participation, and the terms of the objective."""
        constants = [f"{name} {word(value)}" for name, value in self.constants.items() if value is not None]
        terms = ", ".join(f"{name} {value:.4g}" for name, value in vars(self.terms).items())
        objective = f"{self.objective:.4g}: {terms} (weighted)"
        facts = {"tau": self.tau, "objective": objective, "constants": ", ".join(constants)}
        rows = [{"edge server": name, "devices that take part": count} for name, count in self.participation.items()]
        return facts_html("the controller's first decision", facts, table_html("", rows, most=10))

    def as_dict(self) -> dict[str, Any]:
        """The decision for JSON."""
        return asdict(self)


def first_decision(run: RunSetup, *, stated: bool = True) -> FirstDecision:
    """The controller's decision for the first interval; see `h2fdp.plan`."""
    if run.config.control.is_algorithm_1:
        section = run.config.control.model_copy(update={"channel": "expected"})
        schedule = H2fdpController(replace(run.context, control=section))
        costs = run.costs.expected()
        edges, decision = schedule.edges(costs), schedule.decide(0, 0)
    else:
        planned = run.schedule()
        assert isinstance(planned, TurnsController), "budgets and targets have a controller of their own"
        edges, decision = _edges(run), planned.decide(0, 0)
    subnets, why = run.topology.subnets, decision.reasons
    assert why is not None, "a controller says why"
    copied: dict[str, Any] = {
        key: why.get(key) for key in ("objective", "runner_up", "constants", "weighed", "multipliers")
    }
    return FirstDecision(
        tau=decision.local_steps,
        participation=dict(zip((each.name for each in subnets), decision.participation.tolist(), strict=True)),
        terms=ObjectiveTerms(**why["terms"]),
        **copied,
        edges={each.name: {"trust": each.trust, **edges[each.name]} for each in subnets},
        power_dbm=range_of(run.costs.drawn(0).power_dbm) if run.costs.chooses_power else None,
        stated=stated,
        network=planned_work(run).costs,
        chosen=tuple(run.chosen),
    )


def _edges(run: RunSetup) -> dict[str, dict[str, float | bool]]:
    """Edge server -> its noise, its devices, and the mean cost of a device's message in the first interval."""
    costs = run.costs.drawn(0)
    network = run.context.network(run.context.sizes)
    joules, seconds = network.means(costs.joules), network.means(costs.seconds)
    return {
        subnet.name: {
            "one_noise": bool(run.context.one_noise[row]),
            "devices": int(run.context.participation[row]),
            "device_joules": float(joules[row]),
            "device_seconds": float(seconds[row]),
        }
        for row, subnet in enumerate(run.topology.subnets)
    }
