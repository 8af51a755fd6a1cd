"""What no account covers, or no noise hides: of an experiment's settings, and of its network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from h2fdp.algorithms import WeightedAverage, rules_in
from h2fdp.config.own_parts import OwnPart
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.privacy import Holder, RequestedExperiment
from h2fdp.privacy.mechanisms.hierarchical import GradientNoise
from h2fdp.schedules import AggregationTimes
from h2fdp.schedules.aggregation_times import share_of
from h2fdp.training.local_steps import gradients_of, pull_of

_LONGEST = 10_000  # local steps of an interval that a schedule could choose
_OTHERS = "null-record or replace"
_MOST_SETS = 20_000  # of devices whose noises an observer may know
_SUMS, _CLOUD = "method.privacy.secure_sum", "topology.cloud.trust"

Found = Iterator[tuple[str, str]]


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of settings that no account covers."""
    if experiment.method.privacy.private:
        yield from experiment.method.traits.problems(experiment.method.privacy.clips, calibration_of(experiment))
    yield from _of_noise_under_a_schedule(experiment)
    if experiment.privacy.noise_law is not None:
        yield from _of_correlated(experiment)
    if experiment.method.privacy.private and experiment.privacy.adjacency != "null-record":
        yield from _of_adjacency(experiment)
    yield from experiment.method.privacy.problems(_requested(experiment))


def problems_of_network(
    experiment: ExperimentFile, topology: Topology, network: Topology, times: AggregationTimes
) -> Found:
    """The same of networks.

    Args:
        topology: as it was drawn.
        network: that is simulated.
        times: of its local aggregations.
    """
    if experiment.privacy.noise_law is not None:
        yield from _of_correlated_sums(experiment, topology, network)
    yield from _of_secure_sums(experiment, topology, network)


def default_calibration(experiment: ExperimentFile) -> Literal["paper", "accounted"]:
    """By an account of the planned run, where there is one and no noise is stated.

    Objective perturbation has no sound one, and raw measurements have none. Schedules that spend a number of local
    iterations, or that nothing but the account ends, keep to the target under the formula's noise too.
    """
    placement, schedule = experiment.method.privacy, experiment.method.traits
    known = placement.private and placement.accounted and not placement.noise_is_given
    kept = schedule.counts_iterations or schedule.ends_by_account
    return "accounted" if known and not kept and schedule.measures is None else "paper"


def calibration_of(experiment: ExperimentFile) -> str:
    """As it is stated, or the default."""
    return experiment.privacy.calibration or default_calibration(experiment)


def _of_noise_under_a_schedule(experiment: ExperimentFile) -> Found:
    schedule, name = experiment.method.traits, experiment.method.schedule.name
    if not experiment.method.privacy.private:
        if schedule.scales_noise:
            yield "method.schedule", "there is no noise to decay; expected a method with noise"
        if experiment.privacy.calibration == "accounted":
            text = "this method adds no noise; leave the key out, which accounts for methods that do, or expected paper"
            yield "privacy.calibration", text
        return
    if experiment.privacy.calibration == "accounted":
        yield from _of_account(experiment)
    if schedule.measures is not None and not experiment.method.privacy.all_steps_noisy:
        text = f"{name} needs raw measurements from the devices, which send no raw updates here"
        yield "method.schedule", f"{text}; expected a schedule that measures nothing, or privacy none or dp-sgd"


def _of_account(experiment: ExperimentFile) -> Found:
    """What no noise can be calibrated to an account for, step by step or before the run."""
    key, schedule = "privacy.calibration", experiment.method.traits
    if experiment.method.privacy.rounding is not None and schedule.reads_releases and not schedule.foreseen:
        text = "noise that is chosen interval by interval does not go with sums of integers, whose grid follows it"
        yield key, f"{text}; expected paper, or secure_sum without rounding"


def _of_correlated(experiment: ExperimentFile) -> Found:
    """What has no account where a node takes back earlier noise of its own."""
    method, placement, schedule = experiment.method, experiment.method.privacy, experiment.method.traits
    independent = "or privacy.correlated: null"
    if not isinstance(placement, GradientNoise) or placement.noise == "steps":
        text = "noise is correlated from one noisy sum of gradients to the next, by who sends it"
        yield "method.privacy", f"{text}; expected hierarchical or local with noise: uploads, {independent}"
    elif not placement.noise_law.stable:
        text = f"correlated noise is Gaussian; expected gaussian, found {placement.noise_law.name}"
        yield "method.privacy.law", f"{text}, {independent}"
    if not schedule.foreseen or schedule.controlled or schedule.buffers:
        text = f"{method.schedule.name} decides who sends when, or how much noise, as it goes"
        yield "method.schedule", f"{text}; expected fixed, {independent}"
    if calibration_of(experiment) == "paper":
        yield "privacy.calibration", f"the formula counts independent noises; expected accounted, {independent}"


def _of_adjacency(experiment: ExperimentFile) -> Found:
    """What depends on whether a record is there at all, or has no account for one that another replaces."""
    adjacency, training, method = experiment.privacy.adjacency, experiment.training, experiment.method
    key, placement = "privacy.adjacency", experiment.method.privacy
    if not placement.accounted:
        yield key, f"{method.privacy.name} has no account, under whatever adjacency; expected null-record"
    if experiment.method.traits.controlled:
        yield key, "the estimates of a controller are accounted for null records; expected null-record"
    if adjacency == "replace":
        if placement.all_steps_noisy and placement.noise_is_given:
            text = "the steps that a stated noise_multiplier allows are counted for null records"
            yield key, f"{text}; expected null-record, or noise_multiplier: null"
        return
    if placement.clips == "update":
        yield key, "without a device the others' shares grow; expected null-record (a device's update becomes zero)"
    if any(isinstance(each, OwnPart) for each in rules_in(method.aggregation).values()):
        yield key, f"an aggregation of your own is given the numbers of records; expected {_OTHERS}, or average"
    if training.weights == "by-size":
        yield key, "weights by size tell whether a record is there; expected null-record, or training.weights uniform"
    if training.sampling != "poisson":
        text = f"batches of a fixed size hold another record where one is missing; expected poisson, or {_OTHERS}"
        yield key, text
    if placement.tells_batch_sizes:
        yield (
            key,
            f"a sum divided by the records drawn tells how many there are; expected normalize expected, or {_OTHERS}",
        )
    if placement.about_replaced_records:
        yield key, f"the claim is about records that are replaced; expected {_OTHERS}"


def _requested(experiment: ExperimentFile) -> RequestedExperiment:
    """What a placement judges."""
    calibration, norm = calibration_of(experiment), experiment.training.largest_norm
    method, training = experiment.method, experiment.training
    objective, schedule = experiment.method.local_objective, experiment.method.traits
    step_size = schedule.largest_step_size(training.step_size, training.local_steps, training.intervals)
    local_steps = _LONGEST if schedule.varies_tau or training.local_steps is None else training.local_steps
    aggregation_times = AggregationTimes(training.aggregate_every, training.aggregations_per_interval)
    own = isinstance(experiment.model, OwnPart)  # whatever its name
    bounded = experiment.method.privacy.input_norm is None  # by clipping, if at all
    return RequestedExperiment(
        objective=method.objective.name,
        own_objective=isinstance(method.objective, OwnPart),
        mu=pull_of(objective) or 0.0,
        memory=objective.memory,
        gradients=gradients_of(objective),
        keeps_sensitivity=objective.keeps_sensitivity(step_size, training.momentum),
        step_size=step_size,
        model="a model of your own" if own else experiment.model.name,
        local_aggregations=method.topology != "star" and bool(aggregation_times.offsets(local_steps)),
        clip_norm=norm if bounded or "clip_norm" in training.model_fields_set else None,
        clip_scope=training.clip_scope if "clip_scope" in training.model_fields_set else None,
        momentum=training.momentum,
        loss=training.loss.name,
        calibration=calibration,
        budget=bool(experiment.privacy.budget),
        weights=training.weights,
        schedule=method.schedule.name,
        foreseen=schedule.foreseen,
        controlled=schedule.controlled,
    )


def _of_correlated_sums(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """Streams that meet above edge servers, or on their devices' way, have no account."""
    placement = experiment.method.privacy
    found = {
        f"{network.depth} tiers": network.depth > 1,
        "a secure sum at the cloud": placement.sees(topology.cloud_trust) == "sum",
        "devices that move": topology.mobility is not None,
    }
    if wrong := [words for words, there in found.items() if there]:
        text = "correlated noise has an account for devices, their sums, and trusted edge servers"
        text = f"{text}; found {', '.join(wrong)}"
        yield "privacy.correlated", f"{text}; expected null, or one tier of edge servers below an untrusted cloud"
    sums = [subnet.size for subnet in network.subnets if placement.sees(subnet.trust) == "sum"]
    if sums and placement.rounding is not None:
        text = "integers have discrete noise, of which nothing can be taken back"
        yield f"{_SUMS}.rounding", f"{text}; expected null, or privacy.correlated: null; found {placement.rounding}"
    place = placement.place(("secure-sum",), 1)
    known = 1 if place is None else 1 + place.tolerance.colluding
    if max(map(math.comb, sums, [known] * len(sums)), default=0) > _MOST_SETS:
        text = f"each set of {known} among {max(sums)} devices may know its noises, and the account is of all sets"
        text = f"{text}; expected at most {_MOST_SETS:,} sets, or privacy.correlated: null"
        yield f"{_SUMS}.colluding", text


def _of_secure_sums(experiment: ExperimentFile, topology: Topology, network: Topology) -> Found:
    """What no secure sum of this network can do; other methods treat its edge servers as untrusted.

    Args:
        network: that is simulated.
    """
    placement = experiment.method.privacy
    place = placement.place(("secure-sum",), 1)
    above = [server.name for server in network.aggregators if placement.sees(server.trust) == "sum"]
    subnets = [subnet for subnet in network.subnets if placement.sees(subnet.trust) == "sum"]
    star = experiment.method.topology == "star" or topology.subnets[0].relays is not None
    shares = place is not None and place.holder is Holder.SHARE
    cloud_sums = placement.sees(topology.cloud_trust) == "sum"
    if place is None or not shares or not (cloud_sums or above or subnets):
        return
    method, tolerance, schedule = experiment.method, place.tolerance, experiment.method.traits
    if cloud_sums and star:
        text = "in a star the devices are below the cloud's own edge server, which is untrusted"
        yield _CLOUD, f"{text}; expected untrusted, or method.topology tree"
    if cloud_sums and not schedule.foreseen:
        text = "a sum hides what each child of the cloud uploads, and its messages are in no plan's costs"
        yield _CLOUD, f"{text}; expected untrusted, or a schedule that is fixed before the run"
    if not placement.noise_law.stable:
        text = f"devices add shares of one noise, and a sum of {placement.noise_law.name} noises is of no such law"
        yield "method.privacy.law", f"{text}; expected gaussian, or no secure sums"
    for link, rule in rules_in(method.aggregation).items():
        if not isinstance(rule, WeightedAverage) and (link == "device" or cloud_sums or above):
            text = "under secure sums devices weigh their uploads before they know who drops out"
            yield "method.aggregation", f"{text}; expected average, found {rule.name}"
            break
    if placement.rounding is not None and placement.input_norm is not None:
        text = "integers stand for vectors of bounded length, which clipped gradients make"
        yield f"{_SUMS}.rounding", f"{text}; expected null with input_bound, found {placement.rounding}"
    if placement.rounding is not None and schedule.measures is not None:
        text = "a sum of integers says nothing of single devices, which this schedule measures"
        yield f"{_SUMS}.rounding", f"{text}; expected null, found {placement.rounding}"
    if schedule.controlled and (tolerance.colluding or tolerance.dropouts):
        text = "the controller weighs costs against the noise of one trusted edge server, which tolerances multiply"
        yield _SUMS, f"{text}; expected colluding: 0 and dropouts: 0 with control"
    if above and experiment.control.enabled and experiment.control.has_budget:
        text = f"what is exchanged for the secure sums of {above[0]} is in no plan's costs, so that it could exceed the"
        yield "control", f"{text} budget; expected secure sums at the lowest edge servers alone"
    sizes = np.array([subnet.size for subnet in subnets], dtype=np.int64)
    turns = experiment.training.device_turns
    taking = share_of(sizes, experiment.training.participation)
    taking = (taking if turns == 1 else np.maximum(sizes // turns, 1)).tolist()
    numbers = [number for number, each in enumerate(network.subnets) if placement.sees(each.trust) == "sum"]
    for number, subnet, begin in zip(numbers, subnets, taking, strict=True):
        lying = len(network.lying_devices(number))
        if tolerance.honest_shares(begin) - (lying if lying < subnet.size else 0) < 1:
            lost = tolerance.lost(begin)
            of = "" if subnet.relays is not None else f" of {subnet.name}"
            text = f"of {begin} devices{of} that take part, {tolerance.colluding} may collude and {lost}"
            text = f"{text} drop out" if not lying else f"{text} drop out, besides {lying} that lie"
            yield _SUMS, f"{text}, which leaves no device whose share of the noise is unknown; expected fewer"
            return
