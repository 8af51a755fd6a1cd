"""Refusals of settings that make no sense together, or that no account covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from h2fdp.algorithms import Aggregation, AggregationOptions, ObjectiveOptions, WeightedAverage
from h2fdp.config.own_parts import OwnPart
from h2fdp.data.targets import CLASS, MEASURED, Task
from h2fdp.errors import EXPERIMENT_REFUSALS, refused
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.training.local_steps import LocalObjective, OwnModels, pull_of
from h2fdp.training.losses import LOSSES, NamedLoss
from h2fdp.wording import SCORES

Found = Iterator[tuple[str, str]]
Rows = Iterator[
    tuple[str, str, object, object, object]
]  # why, key, whether it is wrong, what would be right, the value
_OTHERS = "null-record or replace"


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of each combination that means nothing, or that no account covers."""
    method = experiment.method
    objective, combination = method.local_objective, method.combination  # each made once, where it is a user's own
    for reason, *row in (
        *_of_parts(experiment, objective, combination),
        *_of_schedule(experiment),
        *(_of_own_models(experiment, objective) if isinstance(objective, OwnModels) else ()),
        *_of_shares(experiment),
        *_of_target(experiment),
    ):
        yield from refused(reason, cast(Any, row))
    if experiment.training.optimizer is not None:
        yield from _of_optimizer(experiment, objective)
    yield from EXPERIMENT_REFUSALS.of(experiment)
    yield from _of_privacy(experiment)


def _of_parts(experiment: ExperimentFile, objective: LocalObjective, combination: Aggregation) -> Rows:
    """Parts of a method that do not fit each other: those of two places, and rules that need a sum, which the median
    does not make."""
    method, weights = experiment.method, experiment.training.weights
    devices, cloud, rules = method.objective, method.server, method.rules
    known = [each for each in rules.values() if isinstance(each, AggregationOptions)]
    single = combination.visible == "each"
    for part, other, key, right in (
        (devices, getattr(devices, "server", None), "server", "objective {0} with server {1}"),
        (cloud, getattr(cloud, "objective", None), "objective", "objective {1} with server {0}"),
    ):
        found = getattr(method, key).name
        both = devices.name if key == "server" else other
        reason = f"{both} has a part on the devices and one at the cloud"
        yield reason, f"method.{key}", other not in (None, found), right.format(part.name, other), found
    ordered = single and weights == "by-size" and any(each.visible == "each" for each in known)
    yield "the rule orders uploads by their values", "training.weights", ordered, "uniform", weights
    priced, right = single and method.traits.controlled, "aggregation average, or false"
    yield "the controller weighs the noise of an average", "control.enabled", priced, right, "true"
    key, sized, edge = "method.aggregation", single and "cloud" in method.privacy.trusted, rules["edge"]
    yield "central sizes its noise for an average", key, sized, "average", rules["device"].name
    other_rule = method.topology == "star" and edge not in (rules["device"], WeightedAverage())
    yield "a star has no edge servers", f"{key}.edge", other_rule, "average", edge.name
    counting = next((each.name for each in known if each.counts_gradients), "")
    reason = f"{counting} divides an upload by the number of gradients in it, which {devices.name} does not state"
    yield reason, key, counting and pull_of(objective) is None, "average, or another objective", counting


def _of_schedule(experiment: ExperimentFile) -> Rows:
    training, method = experiment.training, experiment.method
    name, schedule, epochs = method.schedule.name, method.traits, training.local_epochs
    fixed, decay, warm_up = isinstance(method.schedule, FixedOptions), training.step_decay, training.warm_up
    key, whole = "training.local_epochs", epochs is not None
    given = method.privacy.all_steps_noisy and method.privacy.noise_is_given
    spent = "with a given noise_multiplier the run ends after R_c local steps, which may not be whole epochs"
    yield f"{name} chooses the number of local steps", key, whole and not schedule.allows_epochs, "local_steps", epochs
    yield spent, key, whole and given, "local_steps", epochs
    stated = "step_decay" in training.model_fields_set and decay != "none" and schedule.fixed_step_size
    yield f"the step size of {name} is the same in all intervals", "training.step_decay", stated, "none", decay
    key, most = "training.warm_up", training.intervals - 1
    yield f"{name} decides on its step sizes itself", key, warm_up and not fixed, "0", warm_up
    yield "intervals of whole step sizes follow", key, warm_up > most, f"at most {most}", warm_up


def _of_shares(experiment: ExperimentFile) -> Rows:
    """Turns of devices and shares of the budget, which the schedule `fixed` alone has, and no formula knows."""
    training, schedule, placement = experiment.training, experiment.method.schedule, experiment.method.privacy
    turns, part, decay = training.device_turns, training.participation, training.budget_decay
    decides, key = not isinstance(schedule, FixedOptions), "training.budget_decay"
    reason = f"{schedule.name} decides for itself who takes part, and under how much noise"
    yield reason, "training.device_turns", decides and turns != 1, "1, or schedule fixed", turns
    both = turns != 1 and part != 1
    yield (
        "devices take part in turns or are drawn",
        "training.participation",
        both,
        "1, or device_turns: 1",
        f"{part:g}",
    )
    if decay == "none":
        return
    yield reason, key, decides, "none, or schedule fixed", decay
    private, on_steps = placement.private, placement.all_steps_noisy
    yield "no noise is added, so that there is no budget", key, not private, "none", decay
    yield "noises on steps are equal", key, on_steps, "none, or hierarchical or local with noise: uploads", decay
    by_formula, right = private and not on_steps and experiment.calibration == "paper", "calibration: accounted"
    yield "the formula counts releases under equal noise", key, by_formula, f"none, or privacy.{right}", decay


def _of_own_models(experiment: ExperimentFile, objective: OwnModels) -> Rows:
    """Settings that leave models of devices' own no step, or send them away from the shared one."""
    training = experiment.training
    name, size, every = experiment.method.objective.name, training.step_size, training.aggregate_every
    past, right = size * objective.towards_received > 2, f"at most {2 / size:g}, or infinite"
    reason = f"steps of size {size:g} would go past the shared model, ever further"
    yield reason, "method.objective.penalty", past, right, f"{objective.towards_received:g}"
    alternates, momentum = objective.takes_turns, training.momentum
    reason = f"{name} has two models and no velocities"
    yield reason, "training.momentum", alternates and momentum, "0", f"{momentum:g}"
    slots = [*every.values()] if isinstance(every, dict) else every if isinstance(every, list) else [every or 2]
    shortest = min(training.local_steps or 2, *slots)
    reason = f"every second step of {name} is one of the device's own model, and there would be none"
    right = "at least 2 steps between two models that a device receives"
    yield reason, "training.local_steps", alternates and shortest < 2, right, shortest


def _of_optimizer(experiment: ExperimentFile, objective: LocalObjective) -> Found:
    """Refusals of whatever reckons with steps along gradients, where an optimiser of devices goes another way.

    Under noise on steps the way is made of noisy gradients, and where whole updates are clipped any way is; else a
    record moves an upload without a bound.
    """
    training, method, placement = experiment.training, experiment.method, experiment.method.privacy
    name, key = getattr(training.optimizer, "name", ""), "training.optimizer"
    own_steps = placement.name == "local" and getattr(placement, "noise", "") == "steps"
    hidden = not placement.private or placement.all_steps_noisy or own_steps or placement.protects == "device"
    counts = any(isinstance(each, AggregationOptions) and each.counts_gradients for each in method.rules.values())
    noisy = "privacy dp-sgd, or local with noise: steps, or privacy.protects: device"
    yield from refused(
        f"an upload of {name} is no sum of clipped gradients, and a record may move it by any length",
        (key, not hidden, f"null, or noise that knows that: {noisy}", name),
    )
    yield from refused(
        "what counts the gradients in an upload knows plain steps and momentum",
        (key, counts, "null, or aggregation average", name),
        (key, objective.memory is not None, "null, or an objective that remembers nothing", name),
        (key, method.traits.controlled, "null, or control.enabled: false", name),
        ("training.momentum", training.momentum > 0, f"0, as {name} has its own", training.momentum),
    )
    kept = training.optimizer is not None and training.optimizer.keeps
    yield from refused(
        "devices keep moments of their own, from one interval of all to the next, and nothing else",
        (f"{key}.state", kept and method.traits.buffers, "fresh, or schedule fixed", "kept"),
    )


def task_of(experiment: ExperimentFile) -> Task:
    """The kind of labels, as far as the file says."""
    task: Task = getattr(experiment.data, "stated_task", "classification")
    return task


def _of_target(experiment: ExperimentFile) -> Rows:
    """Losses and measures that are none of such labels, and parts that need classes."""
    task, training, objective = task_of(experiment), experiment.training, experiment.method.objective
    of, loss, right = f"labels are {task} (data.task)", training.loss, f"{', '.join(MEASURED[task])}, or a cost"
    fitting = [name for name, each in LOSSES.models.items() if task in cast("type[NamedLoss]", each).tasks]
    stated = "loss" in training.model_fields_set  # else it is chosen by the task
    other = stated and isinstance(loss, NamedLoss) and task not in loss.tasks
    yield of, "training.loss", other, f"{' or '.join(fitting)}, or a loss of your own", loss.name
    asked: dict[str, str] = {f"training.until.{name}": name for name in training.until or {} if name in SCORES}
    if experiment.control.accuracy is not None:
        asked = {"control.accuracy": "accuracy"} | {key: name for key, name in asked.items() if name != "accuracy"}
    for key, name in asked.items():
        yield f"is not measured where {of}", key, name not in MEASURED[task], right, name
    sums = task != CLASS.task and isinstance(objective, ObjectiveOptions) and objective.trains is not None
    yield f"{objective.name} has class sums, and {task} no classes", "method.objective", sums, "plain", objective.name


def _of_privacy(experiment: ExperimentFile) -> Found:
    """Settings that no account covers."""
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
