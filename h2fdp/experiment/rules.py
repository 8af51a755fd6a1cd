"""Refusals of settings that make no sense together; `privacy_rules` has those that no account covers."""

from __future__ import annotations

from typing import cast

from h2fdp.algorithms import (
    Aggregation,
    AggregationOptions,
    ObjectiveOptions,
    ServerOptions,
    WeightedAverage,
)
from h2fdp.data.targets import MEASURED, Task
from h2fdp.errors import EXPERIMENT_REFUSALS, refused
from h2fdp.experiment import privacy_rules
from h2fdp.experiment.privacy_rules import Found
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy import Pipeline
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.training.local_steps import LocalObjective, OwnModels, pull_of
from h2fdp.training.losses import LOSSES, NamedLoss
from h2fdp.wording import SCORES


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of each combination that means nothing, or that no account covers."""
    method = experiment.method
    objective, combination = method.local_objective, method.combination  # each made once, where it is a user's own
    yield from _of_state(experiment)
    yield from _of_aggregation(experiment, objective, combination)
    if experiment.training.local_epochs is not None:
        yield from _of_epochs(experiment)
    yield from _of_schedule(experiment)
    if isinstance(objective, OwnModels):
        yield from _of_own_models(experiment, objective)
    yield from _of_turns(experiment)
    yield from _of_target(experiment)
    if experiment.training.optimizer is not None:
        yield from _of_optimizer(experiment, objective)
    yield from EXPERIMENT_REFUSALS.of(experiment)
    yield from privacy_rules.problems(experiment)


def _of_state(experiment: ExperimentFile) -> Found:
    objective, server = experiment.method.objective, experiment.method.server
    wanted = {}
    if isinstance(objective, ObjectiveOptions) and objective.server not in (None, server.name):
        wanted["server"] = objective.name, objective.server
    if isinstance(server, ServerOptions) and server.objective not in (None, objective.name):
        wanted["objective"] = server.objective, server.name
    for axis, (devices, cloud) in wanted.items():
        text = f"{devices} has a part on the devices and one at the cloud"
        yield f"method.{axis}", f"{text}; expected objective {devices} with server {cloud}"


def _of_aggregation(experiment: ExperimentFile, objective: LocalObjective, combination: Aggregation) -> Found:
    rules, name = experiment.method.rules, experiment.method.objective.name
    if combination.visible == "each":
        yield from _of_no_sum(experiment)
    if experiment.method.topology == "star" and rules["edge"] not in (rules["device"], WeightedAverage()):
        yield "method.aggregation.edge", f"a star has no edge servers; expected average, found {rules['edge'].name}"
    counting = [each.name for each in rules.values() if isinstance(each, AggregationOptions) and each.counts_gradients]
    if counting and pull_of(objective) is None:
        text = f"{counting[0]} divides an upload by the number of gradients in it, which {name} does not"
        yield "method.aggregation", f"{text} state; expected average, or another objective"


def _of_no_sum(experiment: ExperimentFile) -> Found:
    """Settings that need the sum of what aggregators receive, which a rule such as the median does not make."""
    training = experiment.training
    rules = [each for each in experiment.method.rules.values() if isinstance(each, AggregationOptions)]
    if training.weights == "by-size" and any(each.visible == "each" for each in rules):
        yield "training.weights", "the rule orders uploads by their values; expected uniform, found by-size"
    if experiment.method.traits.controlled:
        yield "control.enabled", "the controller weighs the noise of an average; expected aggregation average, or false"
    if "cloud" in experiment.method.privacy.trusted:
        yield "method.aggregation", "central sizes its noise for an average; expected average"


def _of_epochs(experiment: ExperimentFile) -> Found:
    placement, key = experiment.method.privacy, "training.local_epochs"
    if not experiment.method.traits.allows_epochs:
        yield key, "this schedule chooses the number of local steps; expected local_steps"
    if placement.all_steps_noisy and placement.noise_is_given:
        text = "with a given noise_multiplier the run ends after R_c local steps, which may not be whole epochs"
        yield key, f"{text}; expected local_steps"


def _of_schedule(experiment: ExperimentFile) -> Found:
    training, name, schedule = experiment.training, experiment.method.schedule.name, experiment.method.traits
    stated = "step_decay" in training.model_fields_set and training.step_decay != "none"
    if stated and schedule.fixed_step_size:
        text = f"the step size of {name} is the same in all intervals; expected none, found {training.step_decay}"
        yield "training.step_decay", text
    key, warm_up, most = "training.warm_up", training.warm_up, training.intervals - 1
    fixed = isinstance(experiment.method.schedule, FixedOptions)
    yield from refused(f"{name} decides on its step sizes itself", (key, warm_up and not fixed, "0", warm_up))
    yield from refused("intervals of whole step sizes follow", (key, warm_up > most, f"at most {most}", warm_up))


def _of_turns(experiment: ExperimentFile) -> Found:
    """Turns of devices and shares of the budget, which the schedule `fixed` alone has, and no formula knows."""
    training, schedule, placement = experiment.training, experiment.method.schedule, experiment.method.privacy
    turns, decay, part, fixed = (
        training.device_turns,
        training.budget_decay,
        training.participation,
        "or schedule fixed",
    )
    decides = not isinstance(schedule, FixedOptions)
    yield from refused(
        f"{schedule.name} decides for itself who takes part, and under how much noise",
        ("training.device_turns", decides and turns != 1, f"1, {fixed}", turns),
        ("training.budget_decay", decides and decay != "none", f"none, {fixed}", decay),
    )
    yield from refused(
        "devices take part in turns or are drawn",
        ("training.participation", turns != 1 and part != 1, "1, or device_turns: 1", f"{part:g}"),
    )
    no_noise, on_steps = not placement.private, placement.all_steps_noisy
    by_formula = not no_noise and not on_steps and experiment.calibration == "paper"
    shares = {
        "no noise is added, so that there is no budget; expected none": no_noise,
        "noises on steps are equal; expected none, or hierarchical or local with noise: uploads": on_steps,
        "the formula counts releases under equal noise; expected none, or privacy.calibration: accounted": by_formula,
    }
    yield from (("training.budget_decay", text) for text, wrong in shares.items() if wrong and decay != "none")


def _of_own_models(experiment: ExperimentFile, objective: OwnModels) -> Found:
    """Settings that leave models of devices' own no step, or send them away from the shared one."""
    training = experiment.training
    name, every = experiment.method.objective.name, training.aggregate_every
    if training.step_size * objective.towards_received > 2:
        text = f"steps of size {training.step_size:g} would go past the shared model, ever further"
        yield "method.objective.penalty", f"{text}; expected at most {2 / training.step_size:g}, or infinite"
    if not objective.takes_turns:
        return
    if training.momentum:
        yield "training.momentum", f"{name} has two models and no velocities; expected 0, found {training.momentum:g}"
    shortest = [training.local_steps or 2, *(every.values() if isinstance(every, dict) else [every or 2])]
    shortest = [each for given in shortest for each in (given if isinstance(given, list) else [given])]
    if min(shortest) < 2:
        text = f"every second step of {name} is one of the device's own model, and there would be none"
        yield "training.local_steps", f"{text}; expected at least 2 steps between two models that a device receives"


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
    feedback = Pipeline(experiment.compression.of_devices).remembers
    yield from refused(
        "devices keep moments of their own, from one interval of all to the next, and nothing else",
        (f"{key}.state", kept and method.traits.buffers, "fresh, or schedule fixed", "kept"),
        ("compression.device.error_feedback", kept and feedback, "false, or state: fresh", "true"),
    )


def task_of(experiment: ExperimentFile) -> Task:
    """The kind of labels, as far as the file says."""
    task: Task = getattr(experiment.data, "stated_task", "classification")
    return task


def _of_target(experiment: ExperimentFile) -> Found:
    """Losses and measures that are none of such labels, and parts that need classes."""
    task, training, objective = task_of(experiment), experiment.training, experiment.method.objective
    measured = ", ".join(MEASURED[task])
    stated = "loss" in training.model_fields_set  # else it is chosen by the task
    if stated and isinstance(training.loss, NamedLoss) and task not in training.loss.tasks:
        fitting = [name for name, each in LOSSES.models.items() if task in cast("type[NamedLoss]", each).tasks]
        text = f"labels are {task} (data.task); expected {' or '.join(fitting)}, or a loss of your own"
        yield "training.loss", f"{text}, found {training.loss.name}"
    asked: dict[str, str] = {f"training.until.{name}": name for name in training.until or {} if name in SCORES}
    if experiment.control.accuracy is not None:
        asked = {"control.accuracy": "accuracy"} | {key: name for key, name in asked.items() if name != "accuracy"}
    for key, name in asked.items():
        if name not in MEASURED[task]:
            yield key, f"is not measured where labels are {task} (data.task); expected {measured}, or a cost"
    if task != "classification" and isinstance(objective, ObjectiveOptions) and objective.trains is not None:
        yield "method.objective", f"{objective.name} has class sums, and {task} no classes; expected plain"
