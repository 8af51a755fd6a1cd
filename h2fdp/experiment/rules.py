"""From a document to a checked experiment: which combinations mean something and are covered by an account, and what
the method makes of keys that are not stated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from h2fdp.algorithms import (
    Aggregation,
    AggregationOptions,
    ObjectiveOptions,
    ServerOptions,
    aggregation_of,
    objective_of,
)
from h2fdp.config import Document, check
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import ExperimentFile, Slots, horizon
from h2fdp.privacy import NoisePlacement, RequestedExperiment, noise_placement_of
from h2fdp.privacy.noise_placement_options import DpSgdOptions
from h2fdp.schedules import AggregationTimes, ScheduleTraits
from h2fdp.schedules.registry import chosen, reconciled
from h2fdp.topology import TRUSTS, Topology
from h2fdp.training.local_objective import LocalObjective, pull_of

_LONGEST = 10_000  # local steps of an interval that a schedule could choose

Found = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class Axes:
    """The parts of a method that its options describe."""

    placement: NoisePlacement
    objective: LocalObjective
    schedule: ScheduleTraits
    aggregation: Aggregation


def check_experiment(document: Document) -> ExperimentFile:
    """The document as an experiment, with the defaults of its method.

    Raises:
        UserError: with every problem of the file.
    """
    experiment = _with_one_schedule(check(ExperimentFile, document), document)
    method = experiment.method
    try:
        axes = Axes(
            noise_placement_of(method.privacy),
            objective_of(method.objective),
            chosen(method.schedule),
            aggregation_of(method.aggregation),
        )
        found = [Problem(text, document.where(key.split(".")), key) for key, text in problems(experiment, axes)]
    except UserError as error:  # of a user's own part, once it is made
        raise _located(error, document) from error.__cause__
    if found:
        raise UserError(found)
    if axes.schedule.controlled:
        _check_control(experiment, document)
    return _with_privacy_defaults(experiment, axes)


def aggregation_times(
    experiment: ExperimentFile, topology: Topology, document: Document | None = None
) -> AggregationTimes:
    """The local aggregations of an experiment in its network; a star has none.

    Args:
        document: of the experiment, to name the line of a mistake.

    Raises:
        UserError: the network does not have the tiers or the edge servers that the experiment names.
    """
    _check_tiers(experiment, topology, document)
    if experiment.method.topology == "star":
        return AggregationTimes()
    return AggregationTimes(_aggregate_every(experiment, topology), experiment.training.aggregations_per_interval)


def _check_tiers(experiment: ExperimentFile, topology: Topology, document: Document | None) -> None:
    """Raise for local aggregations of tiers that the network does not have.

    Raises:
        UserError: a list longer than the network has tiers of edge servers.
    """
    for key in ("aggregate_every", "aggregations_per_interval"):
        stated = getattr(experiment.training, key)
        if isinstance(stated, list) and len(stated) > topology.depth:
            tiers = "one tier" if topology.depth == 1 else f"{topology.depth} tiers"
            where = "" if document is None else document.where(("training", key))
            text = f"expected at most one number for each tier of edge servers, found {len(stated)} for {tiers}"
            raise UserError(text, where, f"training.{key}")


def _aggregate_every(experiment: ExperimentFile, topology: Topology) -> Slots | dict[str, int]:
    """`training.aggregate_every`, with a mapping by trust as one by the names of edge servers.

    Raises:
        UserError: an edge server without a number, a name that the network does not have, a network of several tiers.
    """
    stated, key = experiment.training.aggregate_every, "training.aggregate_every"
    if not isinstance(stated, dict):
        return stated
    if topology.depth > 1:
        raise UserError("expected a list in a network of several tiers, one number for each; found a mapping", key=key)
    names = {subnet.name for subnet in topology.subnets}
    for name in stated:
        if name not in names and name not in TRUSTS:
            text = f"expected {', '.join(TRUSTS)} or the name of an edge server, found {name}"
            raise UserError(text, key=f"{key}.{name}")
    found = {}
    for subnet in topology.subnets:
        slots = stated.get(subnet.name, stated.get(subnet.trust))
        if slots is None:
            text = f"expected a number for the edge server {subnet.name}, by its name or as {subnet.trust}; found none"
            raise UserError(text, key=key)
        found[subnet.name] = slots
    return found


def _with_one_schedule(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """With `control.enabled` and the method's schedule in agreement; the schedule is what is read from here on."""
    try:
        schedule, control = reconciled(experiment.method.schedule, experiment.control)
    except UserError as error:
        raise _located(error, document) from None
    method = experiment.method.model_copy(update={"schedule": schedule})
    return experiment.model_copy(update={"method": method, "control": control})


def _located(error: UserError, document: Document) -> UserError:
    """The same problems with the lines of their keys."""
    return UserError(replace(each, where=each.where or document.where(each.key.split("."))) for each in error.problems)


def _check_control(experiment: ExperimentFile, document: Document) -> None:
    """Raise for what the controller cannot do.

    It weighs costs against the noise; accounted noise would have to be known before its choices are.
    """
    control = experiment.control
    if control.estimates == "oracle" and experiment.privacy.budget:
        text = "no budget covers raw estimates; expected no budget, or control.estimates released or private"
        raise UserError(text, document.where(("privacy", "budget")), "privacy.budget")
    if "step_decay" in experiment.training.model_fields_set and experiment.training.step_decay != "sqrt":
        found = experiment.training.step_decay
        text = f"the controller divides the step size by the square root of the interval; expected sqrt, found {found}"
        raise UserError(text, document.where(("training", "step_decay")), "training.step_decay")
    least = horizon(experiment).least_beta
    largest = control.beta_max
    if largest is not None and largest < least:
        text = f"expected at least {least:.4g}, the beta at which gamma is training.step_size, found {largest:g}"
        raise UserError(text, document.where(("control", "beta_max")), "control.beta_max")
    if control.beta is not None and control.beta > horizon(experiment).largest_beta(control):
        text = f"expected at most beta_max = {horizon(experiment).largest_beta(control):.4g}, found {control.beta:g}"
        raise UserError(text, document.where(("control", "beta")), "control.beta")
    if experiment.privacy.calibration == "accounted":
        text = (
            "expected paper: with control, tau and participation are not known in advance; "
            "use privacy.budget to stop such a run in time"
        )
        raise UserError(text, document.where(("privacy", "calibration")), "privacy.calibration")


def _with_privacy_defaults(experiment: ExperimentFile, axes: Axes) -> ExperimentFile:
    """With what the method's placement of noise makes of keys that are not stated."""
    training, placement, schedule = experiment.training, axes.placement, axes.schedule
    defaults: dict[str, Any] = {}
    if not placement.private or placement.clips == "nothing" or placement.input_norm is not None:
        defaults["clip_norm"] = None
    if not placement.private and training.sampling == "poisson":
        defaults["sampling"] = "fixed"
    if placement.clips == "record":
        defaults["clip_scope"] = "record"
    update = {key: value for key, value in defaults.items() if key not in training.model_fields_set}
    if schedule.fixed_step_size:
        update["step_decay"] = "none"
    changed: dict[str, Any] = {"training": training.model_copy(update=update)}
    if experiment.privacy.calibration is None:
        changed["privacy"] = experiment.privacy.model_copy(update={"calibration": default_calibration(axes)})
    if placement.private and schedule.measures == "secants":
        changed["control"] = experiment.control.model_copy(update={"estimates": "oracle"})
    return experiment.model_copy(update=changed)


def default_calibration(axes: Axes) -> Literal["paper", "accounted"]:
    """By an account of the planned run, where there is one and no noise is stated.

    A schedule whose decisions are not known before the run has none, and objective perturbation has no sound one.
    """
    placement, schedule = axes.placement, axes.schedule
    known = placement.private and placement.accounted and not placement.noise_is_given
    return "accounted" if known and schedule.foreseen and not schedule.controlled else "paper"


def problems(experiment: ExperimentFile, axes: Axes) -> Found:
    """(key, what is wrong and would be right) of each combination that means nothing, or that no account covers."""
    yield from _of_state(experiment)
    yield from _of_aggregation(experiment, axes.objective)
    yield from _of_epochs(experiment, axes.schedule)
    yield from _of_schedule(experiment, axes.schedule)
    yield from _of_noise_under_a_schedule(experiment, axes)
    yield from _of_adjacency(experiment, axes)
    yield from axes.placement.problems(_requested(experiment, axes))


def _of_state(experiment: ExperimentFile) -> Found:
    objective, server = experiment.method.objective, experiment.method.server
    wanted = {}
    if isinstance(objective, ObjectiveOptions) and objective.server not in (None, server.name):
        wanted["server"] = objective.name, objective.server
    if isinstance(server, ServerOptions) and server.objective not in (None, objective.name):
        wanted["objective"] = server.objective, server.name
    for axis, (devices, cloud) in wanted.items():
        text = f"{devices} keeps its state on the devices and at the cloud"
        yield f"method.{axis}", f"{text}; expected objective {devices} with server {cloud}"


def _of_aggregation(experiment: ExperimentFile, objective: LocalObjective) -> Found:
    aggregation, name = experiment.method.aggregation, experiment.method.objective.name
    if not isinstance(aggregation, AggregationOptions) or not aggregation.counts_gradients:
        return
    if pull_of(objective) is None:
        text = f"{aggregation.name} divides an upload by the number of gradients in it, which {name} does not"
        yield "method.aggregation", f"{text} state; expected average, or another objective"


def _of_epochs(experiment: ExperimentFile, schedule: ScheduleTraits) -> Found:
    method, key = experiment.method, "training.local_epochs"
    if experiment.training.local_epochs is None:
        return
    if not schedule.allows_epochs:
        yield key, "this schedule chooses the number of local steps; expected local_steps"
    if isinstance(method.privacy, DpSgdOptions) and method.privacy.noise_multiplier is not None:
        text = "with a given noise_multiplier the run ends after R_c local steps, which may not be whole epochs"
        yield key, f"{text}; expected local_steps"


def _of_schedule(experiment: ExperimentFile, schedule: ScheduleTraits) -> Found:
    method, training, name = experiment.method, experiment.training, experiment.method.schedule.name
    if isinstance(training.aggregate_every, dict) and schedule.controlled:
        yield "training.aggregate_every", "the controller supports one number for all edge servers; found a mapping"
    stated = "step_decay" in training.model_fields_set and training.step_decay != "none"
    if stated and schedule.fixed_step_size:
        text = f"the step size of {name} is the same in all intervals; expected none, found {training.step_decay}"
        yield "training.step_decay", text
    if schedule.metered and method.topology != "star" and training.aggregations_per_interval != 0:
        text = "local aggregations cost more in longer intervals, which the budget does not foresee"
        yield "method.schedule", f"{text}; expected training.aggregations_per_interval: 0, or topology star"
    if schedule.weighs_step_noise and method.privacy.name != "dp-sgd":
        text = f"{name} weighs the number of local steps against the noise of each step; expected privacy dp-sgd"
        yield "method.schedule", text


def _of_noise_under_a_schedule(experiment: ExperimentFile, axes: Axes) -> Found:
    schedule, name, control = axes.schedule, experiment.method.schedule.name, experiment.control
    if not axes.placement.private:
        if schedule.scales_noise:
            yield "method.schedule", "there is no noise to decay; expected a method with noise"
        return
    if experiment.privacy.calibration == "accounted" and not (schedule.foreseen or schedule.controlled):
        yield "privacy.calibration", f"expected paper: the decisions of {name} are not known before the run"
    if schedule.measures != "secants":
        return
    if experiment.method.privacy.name != "dp-sgd":
        text = f"{name} needs raw measurements from the devices, which send no raw updates here"
        yield "method.schedule", f"{text}; expected lipschitz, smoothness and divergence, or privacy none or dp-sgd"
        return
    if control.estimates == "private":
        text = f"expected oracle or released: the measurements of {name} are unbounded, so noise cannot hide them"
        yield "control.estimates", text
    elif control.estimates == "released" and "estimates" in control.model_fields_set:
        text = f"{name} uses raw measurements of the losses on devices, which leak"
        yield "control.estimates", f"{text}; expected oracle (the run is marked), or the constants in method.schedule"


def _of_adjacency(experiment: ExperimentFile, axes: Axes) -> Found:
    """What depends on whether a record is there at all, or has no account for one that another replaces."""
    adjacency, training, method = experiment.privacy.adjacency, experiment.training, experiment.method
    key, placement = "privacy.adjacency", axes.placement
    if adjacency == "null-record" or not placement.private:
        return
    if not placement.accounted:
        yield key, f"{method.privacy.name} has no account, under whatever adjacency; expected null-record"
    if axes.schedule.controlled:
        yield key, "the estimates of a controller are accounted for null records; expected null-record"
    if adjacency == "replace":
        if isinstance(method.privacy, DpSgdOptions) and method.privacy.noise_multiplier is not None:
            text = "the steps that a stated noise_multiplier allows are counted for null records"
            yield key, f"{text}; expected null-record, or noise_multiplier: null"
        return
    if placement.clips == "update":
        yield key, "without a device the others' shares grow; expected null-record (a device's update becomes zero)"
    if training.weights == "by-size":
        yield key, "weights by size tell whether a record is there; expected null-record, or training.weights uniform"
    if training.sampling != "poisson":
        text = f"batches of a fixed size hold another record where one is missing; expected poisson, or {_OTHERS}"
        yield key, text
    if isinstance(method.privacy, DpSgdOptions) and method.privacy.normalize == "drawn":
        yield (
            key,
            f"a sum divided by the records drawn tells how many there are; expected normalize expected, or {_OTHERS}",
        )
    if method.privacy.name == "output":
        yield key, f"the claim is about records that are replaced; expected {_OTHERS}"


_OTHERS = "null-record or replace"


def _requested(experiment: ExperimentFile, axes: Axes) -> RequestedExperiment:
    """What a placement judges."""
    method, training = experiment.method, experiment.training
    objective, schedule = axes.objective, axes.schedule
    step_size = schedule.largest_step_size(training.step_size, training.local_steps, training.intervals)
    local_steps = _LONGEST if schedule.varies_tau or training.local_steps is None else training.local_steps
    aggregation_times = AggregationTimes(training.aggregate_every, training.aggregations_per_interval)
    own = isinstance(experiment.model, OwnPart)  # whatever its name
    bounded = axes.placement.input_norm is None  # by clipping, if at all
    return RequestedExperiment(
        objective=method.objective.name,
        own_objective=isinstance(method.objective, OwnPart),
        mu=pull_of(objective) or 0.0,
        memory=objective.memory,
        keeps_sensitivity=objective.keeps_sensitivity(step_size, training.momentum),
        step_size=step_size,
        model="a model of your own" if own else experiment.model.name,
        model_options={} if own else experiment.model.options(),
        local_aggregations=method.topology != "star" and bool(aggregation_times.offsets(local_steps)),
        clip_norm=training.clip_norm if bounded or "clip_norm" in training.model_fields_set else None,
        clip_scope=training.clip_scope if "clip_scope" in training.model_fields_set else None,
        momentum=training.momentum,
        loss=training.loss.name,
        calibration=experiment.privacy.calibration or default_calibration(axes),
        budget=bool(experiment.privacy.budget),
        schedule=method.schedule.name,
        foreseen=schedule.foreseen,
        controlled=schedule.controlled,
        edge_sees=axes.aggregation.sees,
    )
