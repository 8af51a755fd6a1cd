"""`training: auto`: the choice, before the run, of keys that a file leaves open, from public facts alone.

Where noise is added, the noise in the last model depends on the way that the model goes (the sum of step sizes), not on
how the way is cut into steps; and the best way is where that noise moves the model's scores by about one. So:

- a record's own gradient is clipped, at a seventh of what such a gradient is long at the first model: most are cut;
- each device takes one step on all its records between messages, as amplification would save less noise than full
  batches do at these lengths, and more steps would each cost a release or a larger sensitivity; but where devices are
  protected, an upload is as long whatever made it, and under `LOUD` noise takes five steps, which lead further;
- 30 intervals, with a step size that falls linearly to 0 where scores are linear in the parameters, and stays
  elsewhere: an equal way has its first step half as long then, and long first steps lead an LSTM astray;
- where noise is little (`LITTLE`), up to 60 intervals of linear models, as many short steps follow the loss better than
  few long ones, and twice as many features of images, the last of which more noise would hide; where it is `MUCH`, two
  thirds of them;
- before the first interval the private mean of public features is released, which is taken off them
  (`data.statistics`): 6 % of the budget for features that are shorter, and for steps that no mean makes steep;
- shares of the privacy budget that fall as the step sizes do, which leaves least noise in the last model;
- another law of a node's noises together (`PrivacySection.alternatives`), where trusted edge servers have one noise for
  devices that are not in every release, if it leaves less noise in the last model (`_quietest`);
- shares in averages by numbers of records, for then all records have equal shares in the sum and in its noise;
- the step size at which the noise in the last model moves scores by `SCORES`, found by perturbing the parameters; but
  no longer a way than training without noise makes use of (`FARTHEST`).

The length of gradients and the reach of noise are those of a `Probe`.
The rule was fitted to Fashion-MNIST under softmax regression and a perceptron; `docs/defaults.md` has what it reaches
on tasks that had no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from torch import nn

from h2fdp.algorithms import ObjectiveOptions, aggregation_of
from h2fdp.config.own_parts import OwnPart
from h2fdp.data.federate import DataSection
from h2fdp.data.federated import DeviceData
from h2fdp.data.published_sets import Leaf
from h2fdp.data.scattering import Scattering, are_images
from h2fdp.data.targets import Target
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import conflicts
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.models import registry
from h2fdp.models.construct import ParameterLayout
from h2fdp.models.registry import ModelSection
from h2fdp.network import Topology
from h2fdp.privacy import noise_placement_of
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.run.noise_plan import NoisePlan, NoisePlans
from h2fdp.run.prelude import why_none
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.registry import chosen as chosen_schedule
from h2fdp.streams import Streams
from h2fdp.training.losses import loss_of
from h2fdp.training.probe import Probe
from h2fdp.wording import counted

INTERVALS, MOST_INTERVALS = 30, 60
LITTLE, MUCH = 2.07, 9.3  # noise in the last model, see `_in_scores`: below and above which other features pay
OVERWHELMING = 50.0  # such noise, of whole uploads: half of the intervals lead further
LOUD, STEPS = 15.0, 5  # such noise, of whole uploads: above it an upload of so many steps leads further
_FEATURES = 384  # between them
SCORES = {True: 1.3, False: 0.8}  # what the noise in the last model moves scores by, of linear models and of others
FARTHEST = {True: 6_000.0, False: 1_200.0}  # what a way of 30 intervals of clipped gradients moves scores by, at most
_CLIPPED = 0.15  # the clip norm, of the length of a gradient at the first model
# Of real values, which lie from -1 to 1: the same two, and the first step times the curvature of their loss.
VALUES, _CLIPPED_VALUES, _STEEPEST = 0.3, 0.3, 1.6
_MOST_DRAWN = 2_000  # devices times averages where devices are drawn: their accounts are worked out one by one


Recipe = tuple[ExperimentFile, tuple[str, ...]]  # the complete experiment; what was chosen and why, in 80 columns


def with_model(config: ExperimentFile, data: DeviceData, plans: NoisePlans, topology: Topology) -> ExperimentFile:
    """The experiment with a model that has a name of its own, where it leaves that open; arguments see `completed`."""
    if isinstance(objective := config.method.objective, ObjectiveOptions) and objective.trains is not None:
        return config.model_copy(update={"model": _one_shot(config.model, data, objective)})
    if isinstance(config.model, registry.OfWords) and config.model.vocabulary is None:
        return config.model_copy(update={"model": _reading(config.data, config.model)})
    if isinstance(config.model, registry.PublicFeatures) and config.model.encoder is not None:
        return config.model_copy(update={"model": _on_encoder(config, config.model, data, plans, topology)})
    if isinstance(config.model, OwnPart) or config.model.name != "auto":
        return config
    suits = None if isinstance(config.data, OwnPart) or are_images(data.shape) else config.data.suits
    if data.target.task == "tokens" and suits is None:
        text = "a sequence has scores at each position; expected text-transformer, char-lstm or a model of your own"
        raise UserError(text, key="model")
    bounded = noise_placement_of(config.method.privacy).input_norm is not None  # for which losses have to be convex
    if bounded or (config.training.left_open and not has_rule(config)):
        heads = config.method.objective.name == "personal-head"  # which leaves a last layer on devices
        # Whose scale the paper's step size is for.
        model = registry.MODELS["mlp" if heads else "softmax"].model_validate({})
    elif are_images(data.shape):
        head = _head(config, data, topology)
        most, noise = _FEATURES, _noise_of_linear(config, plans, topology, head)
        if noise is not None:
            most = _FEATURES * 2 if noise < LITTLE else _FEATURES * 2 // 3 if noise > MUCH else _FEATURES
        features = Scattering.of(data.shape, min(most, math.prod(data.shape)))  # no more numbers than pixels
        model = registry.MODELS["public-features"].model_validate({"size": features.size} | head)
    elif suits is not None:
        model = _reading(config.data, registry.MODELS[suits].model_validate({}))
    else:
        model = registry.MODELS["logistic"].model_validate({"standardize": True})
    return config.model_copy(update={"model": model.model_copy(update=config.model.begins)})


def _head(config: ExperimentFile, data: DeviceData, topology: Topology) -> dict[str, str]:
    """The head of a linear model on public features: less their private mean, where a rule chooses the training."""
    private = config.training.left_open and noise_placement_of(config.method.privacy).private
    centres = private and has_rule(config) and not why_none(config, data, topology)
    return {"head": "centred" if centres else "softmax"}


def _on_encoder(
    config: ExperimentFile, model: registry.PublicFeatures, data: DeviceData, plans: NoisePlans, topology: Topology
) -> registry.PublicFeatures:
    """Fewer features of an encoder, less their private mean, where noise is much and neither is stated.

    What noise does to a score does not depend on the number of features. But the fewer leave out what photographs, and
    images in general, do not differ in, so that classes are farther apart in them.
    """
    head = _head(config, data, topology)
    if model.size is not None or "head" in model.model_fields_set:
        return model
    noise = _noise_of_linear(config, plans, topology, head)
    found: registry.PublicFeatures = model.model_copy(update={"size": _FEATURES * 2 // 3} | head)
    return found if noise is not None and noise > MUCH else model


def _one_shot(model: ModelSection, data: DeviceData, objective: ObjectiveOptions) -> registry.PublicFeatures:
    """Public features under the head of the objective, as many as the file says or as the objective is best of."""
    if isinstance(model, registry.PublicFeatures) and model.encoder is not None:
        encoded: registry.PublicFeatures = model.model_copy(update={"head": objective.trains})
        return encoded
    stated = isinstance(model, registry.PublicFeatures) and model.size
    size = Scattering.of(data.shape, stated or objective.features).size
    found: registry.PublicFeatures = registry.PublicFeatures.model_validate({"size": size, "head": objective.trains})
    return found


def _noise_of_linear(
    config: ExperimentFile, plans: NoisePlans, topology: Topology, head: dict[str, str]
) -> float | None:
    """The noise in scores of any features under this head; None where it does not choose them. See `_in_scores`."""
    # A budget buys more turns with short messages.
    if config.control.enabled or not (config.training.left_open and noise_placement_of(config.method.privacy).private):
        return None
    model = registry.MODELS["public-features"].model_validate(head)
    whole = _way(config.model_copy(update={"model": model}), topology)
    return None if whole is None else _in_scores(_quietest(whole, plans)[0])


def _in_scores(plan: NoisePlan) -> float:
    """Standard deviation of the noise in a linear model that went the farthest way of 30 intervals, in scores.

    Of n records and N nodes that add noise, it is FARTHEST sqrt(N) / (n mu): 2.7, 1.2 and 0.4 for the paper's network,
    60,000 records and epsilon 1 without trusted edge servers, with all of them trusted and under one sum.
    """
    return FARTHEST[True] * plan.model.per_step


def _reading(data: DataSection, model: registry.ModelOptions) -> registry.ModelOptions:
    """The model for as many words as the data number, where they state it."""
    words = data.vocabulary if isinstance(data, Leaf) else None  # of sequences classes say it
    found: registry.ModelOptions = model.model_copy(update={"vocabulary": words})
    return found


def has_rule(config: ExperimentFile) -> bool:
    """Whether there is a rule for the method: one step between messages under noise, or plain descent without."""
    return not (_no_rule(config) or settled(config))


def _no_rule(config: ExperimentFile) -> str:
    """The choice for which there is no rule, in words; empty where there is one for all."""
    method, training = config.method, config.training
    placement, schedule = noise_placement_of(method.privacy), chosen_schedule(method.schedule)
    plain, one_step = method.objective.name in ("plain", "scaffold"), training.local_steps == 1
    if isinstance(method.objective, OwnPart):
        return "an objective of your own"
    if training.local_epochs is not None:
        return "local_epochs"
    if schedule.varies_tau and not schedule.controlled:
        return "a schedule that chooses the local steps"
    if not placement.private:
        return "" if plain else f"objective {method.objective.name}"
    if placement.clips in ("model", "nothing") or placement.input_norm is not None or not placement.accounted:
        return f"privacy {placement.name}"
    if placement.noise_is_given:
        return "a stated noise_multiplier"
    return "" if plain or one_step or "local_steps" in training.left_open else "several local steps of this objective"


def _in_turns(config: ExperimentFile) -> bool:
    return config.control.enabled and config.control.turns is not None


def intervals_of(config: ExperimentFile, servers: int) -> int:
    """K_g, known before the data are: as stated, or the least that `auto` chooses.

    Args:
        servers: edge servers with devices, of which some take part in an interval where they take turns.
    """
    training, control = config.training, config.control
    if "intervals" in training.left_open and "intervals" in settled(config):
        return int(settled(config)["intervals"])
    noisy = noise_placement_of(config.method.privacy).private
    if "intervals" not in training.left_open or not noisy or not has_rule(config):
        return training.intervals
    if not control.enabled or control.turns is None:
        return INTERVALS
    return round(INTERVALS * servers / max(1, round(control.turns * servers)))  # as many turns of each edge server


def settled(config: ExperimentFile) -> dict[str, Any]:
    """Keys in which the objective leaves no choice."""
    objective = config.method.objective
    return dict(objective.settles) if isinstance(objective, ObjectiveOptions) else {}


def completed(
    config: ExperimentFile,
    data: DeviceData,
    module: Callable[[], nn.Module],
    plans: NoisePlans,
    topology: Topology,
) -> Recipe:
    """The experiment with everything that it leaves open chosen.

    Args:
        data: as the model sees them.
        module: builds the first model.
        plans: of the noise of the ways that are compared.
        topology: as it was drawn.
    """
    left_open = config.training.left_open
    if not left_open:
        return config, ()
    if values := settled(config):
        if "clip_norm" in left_open and not noise_placement_of(config.method.privacy).private:
            values |= {"clip_norm": None, "clip_scope": "batch"}
        whole = _with(config, values | {"aggregate_every": 1, "step_decay": "none", "weights": _weights(config)})
        return whole, _lines(whole, data)
    if not has_rule(config):
        return _as_the_paper(config, topology)
    if not noise_placement_of(config.method.privacy).private:
        return _without_noise(config, data, module)
    config = _of_single_steps(config)
    probe = probe_of(module(), data, config)
    gradient = _rounded((_CLIPPED_VALUES if probe.curvature else _CLIPPED) * probe.gradient)
    if _of_updates(config) and config.training.optimizer is not None:  # whose coordinates move by a step size each
        gradient = _rounded(math.sqrt(ParameterLayout(module()).size))
    rounds_of = _rounds(config, topology, gradient, linear=probe.linear)
    chosen = _with(config, rounds_of)
    if any(key == "training.budget_decay" for key, _ in conflicts(chosen)):
        rounds_of["budget_decay"] = "none"  # devices take turns, or each step has its noise
        chosen = _with(config, rounds_of)
    if conflicts(chosen):
        return _as_the_paper(config, topology)
    plan, quieter = _quietest(_with(config, rounds_of | {"step_size": 1.0}), plans)
    if probe.linear and "intervals" in left_open and not config.control.enabled:
        overwhelmed = _of_updates(config) and _in_scores(plan) > OVERWHELMING
        rounds_of["intervals"] = INTERVALS // 2 if overwhelmed else _intervals(_in_scores(plan))
        if rounds_of["intervals"] != plan.setup.config.training.intervals:
            plan, quieter = _quietest(_with(config, rounds_of | {"step_size": 1.0}), plans)
    config = config.model_copy(update={"privacy": plan.setup.config.privacy})
    chosen = _with(config, rounds_of)
    if "step_size" not in left_open:
        return chosen, (*_lines(chosen, data), *quieter)
    training, scores, norm = chosen.training, SCORES[probe.linear], chosen.training.largest_norm
    assert norm is not None, "gradients are clipped where noise is added"
    noise_std = plan.model.noise_std * norm
    by_noise = scores / (noise_std * probe.reach) if noise_std else math.inf
    longer = 1.0
    if probe.linear and not config.control.enabled:  # the first step is no longer than that of 30, of falling ones
        many, few = min(MOST_INTERVALS, training.intervals) / INTERVALS, (training.intervals + 1) / (INTERVALS + 1)
        longer = many if many > 1 else few
    by_way = FARTHEST[probe.linear] * longer / (plan.model.way * norm * probe.reach)
    if probe.curvature:  # of real values: where a way ends does not depend on how far it could go
        by_noise, by_way = VALUES * by_noise / scores, _STEEPEST / probe.curvature
    size = _rounded(min(by_noise, by_way))
    moved = size * noise_std * probe.reach
    if _of_updates(config):  # of steps along gradients of this length, so that noise goes with the step size
        if "clip_norm" not in left_open:
            size, moved = _rounded(norm / gradient), noise_std * probe.reach
        rounds_of["clip_norm"] = _rounded(size * gradient)
        if probe.linear and not probe.curvature and _in_scores(plan) > LOUD and _free_steps(config):
            rounds_of |= {"local_steps": STEPS, "aggregate_every": STEPS}
    falls = "constant" if training.step_decay == "none" else training.step_decay
    why = f"step_size {size:g} ({falls}): by it noise moves the last scores by {moved:.2g}"
    if _in_turns(config):
        why = f"step_size {size:g} ({falls}) if all are made; the budget's plan decides how many"
    whole = _with(config, rounds_of | {"step_size": size})
    return whole, (*_lines(whole, data), *quieter, why)


def _free_steps(config: ExperimentFile) -> bool:
    """Whether plain local steps, and when edge servers average, are open: all steps of an interval in one upload."""
    open_ = {"local_steps", "aggregate_every", _LOCAL} <= config.training.left_open
    return open_ and config.method.objective.name == "plain" and not config.control.enabled


def _of_updates(config: ExperimentFile) -> bool:
    """Whether a device's update as a whole is clipped, not gradients."""
    return noise_placement_of(config.method.privacy).clips == "update"


def _quietest(config: ExperimentFile, plans: NoisePlans) -> tuple[NoisePlan, tuple[str, ...]]:
    """The plan of a complete configuration, under the law of noise that leaves least; what it leaves, in words.

    What each leaves follows from its account. There is nothing to gain where all devices are in
    all releases of a stream (Cauchy and Schwarz, experiments/defaults/): so where each device adds its own noise.
    """
    alone = plans.of(_fixed(config))
    run, training = alone.setup, config.training
    averages = training.intervals * (len(run.aggregation_times.offsets(run.local_steps)) + 1)
    drawn = training.public_share < 1 and run.topology.devices * averages <= _MOST_DRAWN
    absent = training.turns > 1 or drawn
    shared = any(each.adds_noise == "edge" for each in run.blueprint.facts)
    if config.control.enabled or not (absent and shared):
        return alone, ()
    sections = config.privacy.alternatives(training.intervals)
    others = (config.model_copy(update={"privacy": each}) for each in sections)
    found = plans.quieter(alone, takewhile(lambda other: not conflicts(other), others))
    if found is alone or (law := found.setup.config.privacy.noise_law) is None:
        return alone, ()
    left = found.model.noise_std / alone.model.noise_std
    return found, (f"{law.in_words}: {left:.2g} of what independent noise leaves",)


def _of_single_steps(config: ExperimentFile) -> ExperimentFile:
    """The experiment in which turns of edge servers take one step each; its way is that of 30 turns of each."""
    if not (_in_turns(config) and "local_steps" in config.training.left_open):
        return config
    return config.model_copy(update={"control": config.control.model_copy(update={"tau_max": 1})})


def foreseen(config: ExperimentFile, topology: Topology) -> ExperimentFile | None:
    """The experiment before its features are made: under the number of intervals and steps that will be chosen, at a
    clip norm and a step size of 1. None where a method decides by more than these."""
    if not config.training.left_open:
        return config
    if not (has_rule(config) and noise_placement_of(config.method.privacy).private):
        return None
    return _way(_of_single_steps(config), topology, budget_decay="none")


def _way(config: ExperimentFile, topology: Topology, **changes: str) -> ExperimentFile | None:
    """The experiment under a linear model at a clip norm and a step size of 1; None where keys do not go together."""
    whole = _with(config, _rounds(config, topology, 1.0, linear=True) | {"step_size": 1.0} | changes)
    return None if conflicts(whole) else whole


def _intervals(noise: float) -> int:
    """K_g of linear models by the noise of the farthest way, see `_in_scores`."""
    return round(min(MOST_INTERVALS, max(INTERVALS, INTERVALS * math.sqrt(LITTLE / max(noise, 1e-9)))))


def _fixed(config: ExperimentFile) -> ExperimentFile:
    """The run without turns: all edge servers in each interval."""
    if not _in_turns(config):
        return config
    control = config.control.model_copy(update={"enabled": False})
    method = config.method.model_copy(update={"schedule": FixedOptions()})
    return config.model_copy(update={"control": control, "method": method})


def _rounds(config: ExperimentFile, topology: Topology, clip_norm: float, *, linear: bool) -> dict[str, Any]:
    """One step on all records between messages; of several local steps, each is followed by a local aggregation, as
    several between releases would multiply the sensitivity."""
    training = config.training
    steps = training.local_steps if "local_steps" not in training.left_open else 1
    updates, falls = _of_updates(config), "linear" if linear else "none"
    if config.control.enabled and config.control.is_algorithm_1:
        falls = "sqrt"
    elif updates and "step_size" not in training.left_open:
        clip_norm *= training.step_size
    return {
        "intervals": intervals_of(config, len(topology.subnets)),
        "local_steps": steps,
        "aggregate_every": steps if steps and steps > 1 and _in_star(config, topology) else 1,
        "aggregations_per_interval": None,
        "batch_size": None,
        "sampling_rate": 1.0,
        "clip_scope": "batch" if updates else "record",
        "clip_norm": clip_norm,
        "step_decay": falls,
        "budget_decay": falls if "step_decay" in training.left_open else training.step_decay,
        "weights": _weights(config),
    }


def _weights(config: ExperimentFile) -> str:
    """Shares by size give every record an equal part; but they would show whether a record is there, and a rule such as
    the median has none."""
    placement = noise_placement_of(config.method.privacy)
    shown = placement.private and (config.privacy.adjacency == "add-remove" or placement.protects == "device")
    return "uniform" if shown or aggregation_of(config.method.aggregation).visible == "each" else "by-size"


def _without_noise(config: ExperimentFile, data: DeviceData, module: Callable[[], nn.Module]) -> Recipe:
    """The paper's rhythm, at a step size for the scale of the inputs."""
    size = step_without_noise(module(), data, config)
    whole = _with(config, {"step_size": size, "weights": _weights(config)})
    return whole, _lines(whole, data)


def probe_of(module: nn.Module, data: DeviceData, config: ExperimentFile) -> Probe:
    """The probe of a model on the devices' records; see `Probe.of`."""
    unit = isinstance(config.model, registry.PublicFeatures)
    loss = loss_of(config.training.loss, data.classes, data.target)
    return Probe.of(module, data, loss, Streams(config.seed).open("cloud", "recipe"), unit_inputs=unit)


def best_noise(target: Target) -> float:
    """The noise in scores of a well trained model, roughly: with more, noise decides; with less, it learns little."""
    return VALUES if target.task == "regression" else 1.0


def step_without_noise(module: nn.Module, data: DeviceData, config: ExperimentFile) -> float:
    """A step size for stochastic gradients that nothing clips: of linear models by the scale of the inputs."""
    probe = probe_of(module, data, config)
    if probe.curvature:  # of single records
        return _rounded(0.5 / probe.reach**2)
    return _rounded(_WITHOUT_NOISE / probe.reach**2) if probe.linear else 0.1


_LOCAL = "aggregations_per_interval"
_WITHOUT_NOISE = 80.0  # step sizes of stochastic gradients times the squared length of inputs, of linear models


def _in_star(config: ExperimentFile, topology: Topology) -> bool:
    """Whether no edge server averages between two models of the cloud."""
    return simulated(topology, config.method.topology, config.method.privacy) is not topology


def _as_the_paper(config: ExperimentFile, topology: Topology) -> Recipe:
    """The recipe with the paper's values for all that is open, and no local aggregations where the method has none:
    there is no better rule.

    Raises:
        UserError: these do not fit the method.
    """
    whole = _with(config, {})
    relays = topology.relayed and config.method.topology == "tree" and _in_star(config, topology)
    if relays or any(key == f"training.{_LOCAL}" for key, _ in conflicts(whole)):
        whole = _with(config, {"aggregate_every": None, _LOCAL: 0})
    if found := conflicts(whole):
        raise UserError([Problem(text, key=key) for key, text in found])
    model = "your model" if isinstance(config.model, OwnPart) else f"model {config.model.name}"
    why = _no_rule(config) or "these keys together"
    drowned = noise_placement_of(config.method.privacy).clips == "model" and config.privacy.calibration == "accounted"
    state = ("its account drowns the model; privacy.calibration: paper has its claim's noise",) if drowned else ()
    return whole, (f"chosen: the paper's training, as auto has no rule for {why}", *state, model)


def _with(config: ExperimentFile, values: dict[str, Any]) -> ExperimentFile:
    """The experiment with these values for keys that are open, after which none is."""
    training = config.training
    update = {key: value for key, value in values.items() if key in training.left_open}
    return config.model_copy(update={"training": training.complete(update)})


def _lines(config: ExperimentFile, data: DeviceData) -> tuple[str, ...]:
    """The choices that were made, in a line or two."""
    training = config.training
    model = "for your model" if isinstance(config.model, OwnPart) else f"model {config.model.name}"
    features = isinstance(config.model, registry.PublicFeatures)
    size = f" ({data.shape[0] - 1} numbers for each image)" if features else ""
    if training.local_steps is None:
        return (f"chosen: {model}{size}",)
    steps = "1 local step" if training.local_steps == 1 else f"{training.local_steps} local steps"
    if training.sampling_rate is not None:
        records = "on all records" if training.sampling_rate == 1 else f"at sampling rate {training.sampling_rate:g}"
    else:
        records = f"on batches of {training.batch_size}"
    clips = noise_placement_of(config.method.privacy).clips
    what = clips if clips in ("update", "model") else training.clip_scope
    clipped = "" if training.clip_norm is None else f", {what} clipping"
    norm = f" at {training.largest_norm:g}" if clipped else ""
    most = "at most " if _in_turns(config) else ""  # as many as the budget pays for
    return (
        f"chosen: {model}{size}",
        f"{most}{counted(training.intervals, 'interval')} of {steps} {records}{clipped}{norm}",
    )


def _rounded(value: float) -> float:
    """The value to three digits, for a file to be read by people."""
    return float(f"{value:.3g}")
