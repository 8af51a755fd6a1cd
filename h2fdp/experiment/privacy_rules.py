"""Refusals of settings and networks that no account covers, or whose releases no noise hides."""

from __future__ import annotations

from collections.abc import Iterator

from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import refused
from h2fdp.experiment.sections import ExperimentFile

_LONGEST = 10_000  # local steps of an interval that a schedule could choose
_OTHERS = "null-record or replace"
_MOST_SETS = 20_000  # of devices whose noises an observer may know
_SUMS, _CLOUD = "method.privacy.secure_sum", "topology.cloud.trust"

Found = Iterator[tuple[str, str]]


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of settings that no account covers."""
    if experiment.method.privacy.private:
        yield from experiment.method.traits.problems(experiment.method.privacy.clips, experiment.calibration)
    yield from _of_noise_under_a_schedule(experiment)
    if experiment.method.privacy.private and experiment.privacy.adjacency != "null-record":
        yield from _of_adjacency(experiment)
    yield from experiment.method.privacy.problems(experiment)


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
    """Settings under which no noise can be calibrated to an account, step by step or before the run."""
    key, schedule = "privacy.calibration", experiment.method.traits
    if experiment.method.privacy.rounding is not None and schedule.reads_releases and not schedule.foreseen:
        text = "noise that is chosen interval by interval does not go with sums of integers, whose grid follows it"
        yield key, f"{text}; expected paper, or secure_sum without rounding"


def _of_adjacency(experiment: ExperimentFile) -> Found:
    """Settings that depend on whether a record is there at all, or have no account for one that another replaces."""
    key, adjacency, training = "privacy.adjacency", experiment.privacy.adjacency, experiment.training
    method, placement = experiment.method, experiment.method.privacy
    replaced, missing = adjacency == "replace", adjacency not in ("replace", "null-record")
    own = any(isinstance(each, OwnPart) for each in method.rules.values())
    drawn = "poisson" if training.local_epochs is None else "allocated"
    counted, by_size = placement.all_steps_noisy and placement.noise_is_given, training.weights == "by-size"
    yield from refused(
        "what is released has no account for such neighbours",
        (key, not placement.accounted, f"null-record, as {placement.name} has no account", adjacency),
        (key, method.traits.controlled, "null-record, of which the estimates of a controller are", adjacency),
        (key, replaced and counted, "null-record, of which steps under a stated noise_multiplier are", adjacency),
    )
    yield from refused(
        "what is released tells whether a record is there",
        (key, missing and placement.clips == "update", "null-record (a device's update becomes zero)", adjacency),
        (key, missing and own, f"{_OTHERS}, or average: your aggregation knows numbers of records", adjacency),
        (key, missing and by_size, f"{_OTHERS}, or training.weights uniform", adjacency),
        (key, missing and training.sampling == "fixed", f"{_OTHERS}, or training.sampling {drawn}", "fixed"),
        (key, missing and placement.tells_batch_sizes, f"normalize expected, or {_OTHERS}", "normalize drawn"),
        (key, missing and placement.about_replaced_records, f"{_OTHERS}, which the claim is about", adjacency),
    )
