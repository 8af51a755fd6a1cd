"""An experiment file as a whole, and the defaults that depend on whether privacy is on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from h2fdp.config import Document, Section, check
from h2fdp.config.fields import Expect, Text
from h2fdp.control import ControlSection, Horizon, Rhythm
from h2fdp.control.schedule_section import ADAPTIVE, ScheduleSection
from h2fdp.data import DataSection
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.sections import FaultsSection, PrivacySection, Seed, TrackingSection, TrainingSection
from h2fdp.methods import METHODS, MethodSection
from h2fdp.models import ModelSection
from h2fdp.privacy import Request, placement_of
from h2fdp.runtime.section import RuntimeSection
from h2fdp.training.objectives import objective_of

_LONGEST = 10_000  # local steps of an interval that a schedule could choose
_CONSTANT = ("ali-dpfl", "ali-dpfl-v1", "resource-budget")  # schedules that plan with one step size


class ExperimentFile(Section):
    """One experiment: what the user wrote, checked, every default filled in."""

    name: Annotated[
        str, Field(pattern=r"^[\w.\-]{1,100}$"), Expect("a name of letters, digits, dots, dashes and underscores")
    ] = "experiment"
    topology: Annotated[str | dict[str, Any], Expect("a topology file's path or an inline topology")]
    data: DataSection
    model: ModelSection = ModelSection(name="softmax")
    method: MethodSection = MethodSection.model_validate(METHODS["h2fdp"].model_dump())
    training: TrainingSection = TrainingSection.model_validate({})
    privacy: PrivacySection = PrivacySection()
    control: ControlSection = ControlSection()
    runtime: RuntimeSection = RuntimeSection()
    faults: FaultsSection = FaultsSection()
    tracking: TrackingSection = TrackingSection()
    seed: Seed = 1
    sweep: dict[Text, Annotated[list[Any], Expect("a list of values")]] = Field(default_factory=dict)


def check_experiment(document: Document) -> ExperimentFile:
    """The document as an experiment, with the defaults of its method.

    Raises:
        UserError: with every problem of the file.
    """
    experiment = _with_one_schedule(check(ExperimentFile, document), document)
    _check_method(experiment, document)
    _check_control(experiment, document)
    return _with_privacy_defaults(experiment)


def _with_one_schedule(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """`control.enabled` and the method's schedule are two ways to say the same."""
    method, control = experiment.method, experiment.control
    adaptive = method.schedule.name == ADAPTIVE
    if adaptive and "enabled" in control.model_fields_set and not control.enabled:
        text = f"the method's schedule is {ADAPTIVE}; expected true, or a method with schedule fixed"
        raise UserError(text, document.where(("control", "enabled")), "control.enabled")
    if not adaptive and not control.enabled:
        return experiment
    if not adaptive and method.schedule.name != "fixed":
        text = f"the method's schedule is {method.schedule.name}; expected false, or a method with schedule {ADAPTIVE}"
        raise UserError(text, document.where(("control", "enabled")), "control.enabled")
    update = {
        "method": method.model_copy(update={"schedule": ScheduleSection(name=ADAPTIVE)}),
        "control": control.model_copy(update={"enabled": True}),
    }
    return experiment.model_copy(update=update)


def _check_method(experiment: ExperimentFile, document: Document) -> None:
    """Raise for combinations of axes that mean nothing, or that no account covers.

    Raises:
        UserError: with the reason.
    """
    method, training = experiment.method, experiment.training
    placement = placement_of(method.privacy)
    private = placement.private
    problems = []
    for name in ("scaffold", "feddyn"):
        if (method.objective.name == name) != (method.server.name == name):
            text = f"devices and cloud keep {name}'s state together; expected objective {name} with server {name}"
            problems.append(("server" if method.objective.name == name else "objective", text))
    found = [Problem(text, document.where(("method",)), f"method.{axis}") for axis, text in problems]
    for key, text in placement.problems(_request(experiment)):
        found.append(Problem(text, document.where(key.split(".")), key))
    if training.local_epochs is not None and (experiment.control.enabled or method.schedule.name != "fixed"):
        text = "this schedule counts in steps; expected local_steps"
        found.append(Problem(text, document.where(("training", "local_epochs")), "training.local_epochs"))
    if (
        "step_decay" in training.model_fields_set
        and training.step_decay != "none"
        and method.schedule.name in _CONSTANT
    ):
        text = f"the step size of {method.schedule.name} is the same in all intervals; expected none, found sqrt"
        found.append(Problem(text, document.where(("training", "step_decay")), "training.step_decay"))
    given = method.privacy.name == "dp-sgd" and method.privacy.noise_multiplier is not None
    if training.local_epochs is not None and given:
        text = "a run under a given noise_multiplier ends after R_c local steps, which need not be whole epochs"
        found.append(
            Problem(
                f"{text}; expected local_steps", document.where(("training", "local_epochs")), "training.local_epochs"
            )
        )
    metered = method.schedule.joules is not None or method.schedule.seconds is not None
    if metered and method.topology != "star" and training.aggregations_per_interval != 0:
        text = "local aggregations cost more in longer intervals, which the budget does not foresee"
        where = document.where(("method",))
        found.append(
            Problem(
                f"{text}; expected training.aggregations_per_interval: 0, or topology star", where, "method.schedule"
            )
        )
    if method.schedule.name.startswith("ali-dpfl") and method.privacy.name != "dp-sgd":
        text = f"{method.schedule.name} weighs local steps against the noise on each; expected privacy dp-sgd"
        found.append(Problem(text, document.where(("method",)), "method.schedule"))
    if private and experiment.privacy.calibration == "accounted" and method.schedule.name not in ("fixed", ADAPTIVE):
        text = f"expected paper: what {method.schedule.name} will do is not known before the run"
        found.append(Problem(text, document.where(("privacy", "calibration")), "privacy.calibration"))
    if method.schedule.name == "noise-decay" and not private:
        found.append(
            Problem(
                "there is no noise to decay; expected a placement with noise",
                document.where(("method",)),
                "method.schedule",
            )
        )
    if private and method.schedule.measures and experiment.control.estimates == "private":
        text = f"expected oracle or released: what {method.schedule.name} measures has no range to be released in"
        found.append(Problem(text, document.where(("control", "estimates")), "control.estimates"))
    elif private and method.schedule.measures and _stated(experiment, "released"):
        text = (
            f"{method.schedule.name} has devices measure constants of their losses, which leaks; expected oracle (the "
            f"run is marked), or the constants in method.schedule"
        )
        found.append(Problem(text, document.where(("control", "estimates")), "control.estimates"))
    if found:
        raise UserError(found)


def _stated(experiment: ExperimentFile, estimates: str) -> bool:
    """Whether the user wrote these estimates down."""
    return "estimates" in experiment.control.model_fields_set and experiment.control.estimates == estimates


def _check_control(experiment: ExperimentFile, document: Document) -> None:
    """Raise for what the controller cannot do.

    It weighs costs against the noise; accounted noise would have to be known before its choices are.
    """
    if not experiment.control.enabled:
        return
    control = experiment.control
    if control.estimates == "oracle" and experiment.privacy.budget:
        text = "raw estimates are beyond every budget; expected no budget, or control.estimates released or private"
        raise UserError(text, document.where(("privacy", "budget")), "privacy.budget")
    if "step_decay" in experiment.training.model_fields_set and experiment.training.step_decay != "sqrt":
        text = "the controller's step size falls with the root of the interval; expected sqrt, found none"
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
            "expected paper with control, whose tau and participants are not known in advance; "
            "privacy.budget ends such a run in time"
        )
        raise UserError(text, document.where(("privacy", "calibration")), "privacy.calibration")


def _with_privacy_defaults(experiment: ExperimentFile) -> ExperimentFile:
    """With what the method's placement of noise makes of keys that are not stated."""
    training = experiment.training
    placement = placement_of(experiment.method.privacy)
    defaults: dict[str, Any] = {}
    if not placement.private or placement.clips == "nothing":
        defaults["clip_norm"] = None
    if not placement.private and training.sampling == "poisson":
        defaults["sampling"] = "fixed"
    if placement.clips == "record":
        defaults["clip_scope"] = "record"
    update = {key: value for key, value in defaults.items() if key not in training.model_fields_set}
    if experiment.method.schedule.name in _CONSTANT:
        update["step_decay"] = "none"
    changed: dict[str, Any] = {"training": training.model_copy(update=update)}
    if placement.private and experiment.method.schedule.measures:
        changed["control"] = experiment.control.model_copy(update={"estimates": "oracle"})
    return experiment.model_copy(update=changed)


def _request(experiment: ExperimentFile) -> Request:
    """What a placement judges."""
    method, training, objective = experiment.method, experiment.training, objective_of(experiment.method.objective)
    step_size = _largest_step_size(experiment)
    fixed = method.schedule.name in ("fixed", "noise-decay")
    local_steps = training.local_steps if fixed and training.local_steps is not None else _LONGEST
    rhythm = Rhythm(training.aggregate_every, training.aggregations_per_interval)
    return Request(
        objective=method.objective.name,
        mu=method.objective.mu or 0.0,
        memory=objective.memory,
        keeps_sensitivity=objective.keeps_sensitivity(step_size),
        step_size=step_size,
        model=experiment.model.name,
        model_options=experiment.model.options(),
        local_aggregations=method.topology != "star" and bool(rhythm.offsets(local_steps)),
        clip_norm=training.clip_norm,
        clip_scope=training.clip_scope if "clip_scope" in training.model_fields_set else None,
        momentum=training.momentum,
        calibration=experiment.privacy.calibration,
        budget=bool(experiment.privacy.budget),
        schedule=method.schedule.name,
        controlled=experiment.control.enabled,
    )


def _largest_step_size(experiment: ExperimentFile) -> float:
    """The largest eta_k that the schedule can choose; under control gamma grows as intervals become shorter."""
    training = experiment.training
    if not experiment.control.enabled or training.local_steps is None:
        return training.step_size
    return training.step_size * max(training.local_steps, training.intervals) / training.intervals


def horizon(experiment: ExperimentFile) -> Horizon:
    """K_g, T and where the controller starts."""
    training, slots = experiment.training, experiment.control.slots
    assert training.local_steps is not None, "a controller counts in steps"
    planned = training.intervals * training.local_steps if slots is None else slots
    return Horizon(training.intervals, planned, training.local_steps, training.step_size)
