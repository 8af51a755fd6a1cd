"""Which combinations of an experiment's settings mean something; what no account covers is in `privacy_rules`."""

from __future__ import annotations

from typing import cast

from h2fdp.algorithms import (
    Aggregation,
    AggregationOptions,
    ObjectiveOptions,
    ServerOptions,
    WeightedAverage,
    rules_in,
)
from h2fdp.data.targets import MEASURED, Task
from h2fdp.experiment import privacy_rules
from h2fdp.experiment.privacy_rules import Found, calibration_of
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models.registry import Auto, PublicFeatures, start_of
from h2fdp.privacy import HierarchicalDp
from h2fdp.privacy.mechanisms import compression
from h2fdp.privacy.mechanisms.compression import Quantise, link_in_words
from h2fdp.schedules import buffered
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.training.local_steps import LocalObjective, OwnModels, pull_of
from h2fdp.training.losses import LOSSES, NamedLoss
from h2fdp.wording import SCORES


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of each combination that means nothing, or that no account covers."""
    method = experiment.method
    objective, combination = method.local_objective, method.combination  # each made once, where it is a user's own
    yield from _of_state(experiment)
    if isinstance(method.server, ServerOptions) and method.server.counts_uploads:
        yield from _of_counts(experiment)
    yield from _of_aggregation(experiment, objective, combination)
    if experiment.training.local_epochs is not None:
        yield from _of_epochs(experiment)
    yield from _of_schedule(experiment)
    if isinstance(objective, OwnModels):
        yield from _of_own_models(experiment, objective)
    yield from _of_one_shot(experiment)
    if method.traits.buffers:
        yield from buffered.refusals(experiment, objective, combination, calibration_of(experiment))
    yield from _of_turns(experiment)
    yield from _of_control(experiment)
    yield from _of_target(experiment)
    if experiment.compression.asked:
        yield from compression.refusals(experiment, objective)
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


def _of_counts(experiment: ExperimentFile) -> Found:
    """Models of edge servers that are weighed by their updates."""
    method, name = experiment.method, experiment.method.server.name
    if not experiment.method.traits.buffers or method.topology == "star":
        found = "a star" if method.topology == "star" else method.schedule.name
        text = f"{name} weighs edge servers by how often each uploads; expected schedule buffered and a tree"
        yield "method.server", f"{text}, found {found}"
    if "cloud" in experiment.method.privacy.trusted:
        yield "method.server", f"central releases one average of all uploads, which {name} has not; expected average"


def _of_aggregation(experiment: ExperimentFile, objective: LocalObjective, combination: Aggregation) -> Found:
    rules, name = rules_in(experiment.method.aggregation), experiment.method.objective.name
    if combination.visible == "each":
        yield from _of_no_sum(experiment)
    if experiment.method.topology == "star" and rules["edge"] not in (rules["device"], WeightedAverage()):
        yield "method.aggregation.edge", f"a star has no edge servers; expected average, found {rules['edge'].name}"
    counting = [each.name for each in rules.values() if isinstance(each, AggregationOptions) and each.counts_gradients]
    if counting and pull_of(objective) is None:
        text = f"{counting[0]} divides an upload by the number of gradients in it, which {name} does not"
        yield "method.aggregation", f"{text} state; expected average, or another objective"


def _of_no_sum(experiment: ExperimentFile) -> Found:
    """What needs the sum of what aggregators receive, and has none under a rule such as the median."""
    training = experiment.training
    rules = [each for each in rules_in(experiment.method.aggregation).values() if isinstance(each, AggregationOptions)]
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
    if isinstance(training.aggregate_every, dict) and schedule.controlled and experiment.control.is_algorithm_1:
        text = "the controller that is told its weights supports one number for all edge servers; found a mapping"
        yield "training.aggregate_every", text
    stated = "step_decay" in training.model_fields_set and training.step_decay != "none"
    if stated and schedule.fixed_step_size:
        text = f"the step size of {name} is the same in all intervals; expected none, found {training.step_decay}"
        yield "training.step_decay", text


def _of_turns(experiment: ExperimentFile) -> Found:
    """Turns of devices and shares of the budget, which the schedule `fixed` alone has, and no formula knows."""
    training, schedule = experiment.training, experiment.method.schedule
    for key, neutral in (("device_turns", 1), ("budget_decay", "none")):
        if getattr(training, key) != neutral and not isinstance(schedule, FixedOptions):
            text = f"{schedule.name} decides for itself who takes part, and under how much noise"
            yield f"training.{key}", f"{text}; expected {neutral}, or schedule fixed"
    if training.device_turns > 1 and training.participation != 1:
        text = "devices take part in turns or are drawn; expected 1"
        yield "training.participation", f"{text}, or device_turns: 1; found {training.participation:g}"
    if training.budget_decay == "none":
        return
    right = "expected none"
    if not experiment.method.privacy.private:
        yield "training.budget_decay", f"no noise is added, so that there is no budget; {right}"
    elif experiment.method.privacy.all_steps_noisy:
        text = "the number of noisy steps that the target allows is that of equal noises"
        yield "training.budget_decay", f"{text}; {right}, or hierarchical or local with noise: uploads"
    elif calibration_of(experiment) == "paper":
        text = "the formula counts releases under equal noise"
        yield "training.budget_decay", f"{text}; {right}, or privacy.calibration: accounted"


def _of_own_models(experiment: ExperimentFile, objective: OwnModels) -> Found:
    """What leaves models of devices' own no step, or sends them away from the shared one."""
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


def _of_one_shot(experiment: ExperimentFile) -> Found:
    """What an objective that is no descent leaves no choice in, and the model that it is made for."""
    model, objective = experiment.model, experiment.method.objective
    head = model.head if isinstance(model, PublicFeatures) and "head" in model.model_fields_set else None
    if not isinstance(objective, ObjectiveOptions) or objective.trains is None:
        if head == "discriminant":
            text = f"{objective.name} trains scores by their loss, which has no class sums; expected softmax or mlp"
            yield "model.head", f"{text}, or method one-shot"
        return
    name = f"{objective.name} sends sums over public features, of which a linear model is made"
    if not isinstance(model, PublicFeatures | Auto):
        yield "model", f"{name}; expected auto, or public-features; found {model.name}"
    elif head not in (None, objective.trains):
        yield "model.head", f"{name}; expected {objective.trains}, found {head}"
    for key, right in objective.settles.items():
        found = getattr(experiment.training, key)
        partner = found is None and right is not None  # of a key of a pair, which is found to be stated
        if found != right and not partner and key not in ("clip_norm", "clip_scope"):
            text = f"{objective.name} is one step of length 1 on all records of a device"
            yield f"training.{key}", f"{text}; expected {'null' if right is None else f'{right:g}'}, found {found:g}"
    if isinstance(experiment.training.clip_norm, float | int) and experiment.training.clip_scope != "record":
        text = "the cloud divides by the number of records, and the sum over a batch is cut; expected record"
        yield "training.clip_scope", f"{text}, found {experiment.training.clip_scope}"
    yield from _of_its_length(experiment, objective.settles["clip_norm"])
    yield from _of_one_message(experiment, f"{objective.name} is one message of each device")


def _of_its_length(experiment: ExperimentFile, length: float) -> Found:
    """Clip norms that add noise for nothing, or cut vectors by what the cloud does not know."""
    norm, placement = experiment.training.clip_norm, experiment.method.privacy
    if placement.clips in ("update", "model") and norm != length:
        yield (
            "training.clip_norm",
            f"the cloud would not know how much of an update was cut; expected {length:g}, found {norm}",
        )
    elif placement.private and isinstance(norm, float | int) and norm > length:
        text = f"vectors of records are {length:g} long, and the noise would be made for longer ones"
        yield "training.clip_norm", f"{text}; expected at most {length:g}, found {norm:g}"


def _of_one_message(experiment: ExperimentFile, once: str) -> Found:
    """What goes on from a message before, or comes after one."""
    method, control = experiment.method, experiment.control
    budget = next((key for key in ("joules", "seconds", "accuracy") if getattr(control, key) is not None), None)
    if budget is not None:
        text = f"{once}, of which none can be left out to save cost; expected null"
        yield f"control.{budget}", f"{text}, found {getattr(control, budget):g}"
    elif not isinstance(method.schedule, FixedOptions):
        yield "method.schedule", f"{once}, which all wait for; expected fixed, found {method.schedule.name}"
    if method.upcycle is not None:
        yield "method.upcycle", f"{once}, and no model before it to go on from; expected null, found {method.upcycle:g}"
    if experiment.privacy.noise_law is not None:
        yield "privacy.correlated", f"{once}, and no earlier noise to take back; expected null"
    yield from _of_first_message(experiment, once)
    if (file := start_of(experiment.model)) is not None:
        yield "model.from", f"{once}, which no model enters; expected null, found {file}"


def _of_first_message(experiment: ExperimentFile, once: str) -> Found:
    """What makes a first model where the first message has no part of one, or leaves out coordinates of it."""
    if public := getattr(experiment.data, "public", 0.0):
        text = f"{once}, which no model enters, so that records for a first one are lost"
        yield "data.public", f"{text}; expected 0, found {public:g}"
    links = {"device": experiment.compression.of_devices, "edge": experiment.compression.of_edges}
    for key, stages in links.items():
        if not all(isinstance(stage, Quantise) for stage in stages):
            text = f"{once}, and what is left out of it never comes; expected {{quantise: 8}}, or null"
            yield f"compression.{key}", f"{text}; found {link_in_words(getattr(experiment.compression, key))}"


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


def _of_control(experiment: ExperimentFile) -> Found:
    control, training, privacy = experiment.control, experiment.training, experiment.method.privacy
    if not experiment.method.traits.controlled:
        if control.least_dbm is not None:
            text = "the controller chooses powers, and it is off; expected control.enabled: true, or null"
            yield "control.least_dbm", text
        return
    if training.gamma is not None:
        yield "training.clip_norm", "the controller's estimates are those of clipped gradients; expected a number"
    if control.is_algorithm_1:
        if "step_decay" in training.model_fields_set and training.step_decay != "sqrt":
            text = "the controller divides the step size by the square root of the interval; expected sqrt"
            yield "training.step_decay", f"{text}, found {training.step_decay}"
        return
    whole = "in a run that is planned as a whole"
    if control.solver != "exact":
        yield "control.solver", f"{whole} there is no problem P; expected the default"
    if training.participation != 1:
        text = f"{whole} all devices of an edge server take part; expected 1, found {training.participation:g}"
        yield "training.participation", text
    if control.trust == "weighed" and not (isinstance(privacy, HierarchicalDp) and privacy.noise == "steps"):
        text = "trust is weighed against noise that devices add to their steps; expected method.privacy hierarchical"
        yield "control.trust", f"{text} with noise: steps, or trust: used"
    stated = (training.until or {}).get("accuracy", control.accuracy)
    if control.accuracy is not None and stated != control.accuracy:
        text = f"expected the same as control.accuracy, {control.accuracy:g}, or only one of the two"
        yield "training.until", f"{text}; found {stated:g}"
