"""From a document to a checked experiment, with what its method makes of keys that are not stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from h2fdp.algorithms import aggregation_of, objective_of
from h2fdp.config import Document, check
from h2fdp.errors import Problem, UserError
from h2fdp.experiment import rules
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import UntilSection
from h2fdp.privacy import noise_placement_of
from h2fdp.privacy.noise_placement_options import HierarchicalOptions
from h2fdp.schedules.registry import chosen, reconciled


def check_experiment(document: Document) -> ExperimentFile:
    """The document as an experiment, with the defaults of its method.

    Raises:
        UserError: with every problem of the file.
    """
    experiment = _with_one_schedule(check(ExperimentFile, document), document)
    try:
        axes = _axes(experiment)
        open_keys = {f"training.{key}" for key in experiment.training.left_open}  # to be chosen so that they fit
        found = [
            Problem(text, document.where(key.split(".")), key)
            for key, text in rules.problems(experiment, axes)
            if key not in open_keys
        ]
    except UserError as error:  # of a user's own part, once it is made
        raise _located(error, document) from error.__cause__
    if found:
        raise UserError(found)
    if axes.schedule.controlled:
        _check_control(experiment, document)
    elif experiment.control.least_dbm is not None:
        text = "the controller chooses powers, and it is off; expected control.enabled: true, or null"
        raise UserError(text, document.where(("control", "least_dbm")), "control.least_dbm")
    return _with_end(_with_privacy_defaults(experiment, axes))


def conflicts(experiment: ExperimentFile) -> list[tuple[str, str]]:
    """(key, what is wrong) of a configuration that was changed after it had been checked."""
    return list(rules.problems(experiment, _axes(experiment)))


def _axes(experiment: ExperimentFile) -> rules.Axes:
    method = experiment.method
    return rules.Axes(
        noise_placement_of(method.privacy),
        objective_of(method.objective),
        chosen(method.schedule),
        aggregation_of(method.aggregation),
        experiment.control.estimates,
    )


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
    """Raise for what the controller cannot do."""
    control = experiment.control
    if control.estimates == "oracle" and experiment.privacy.budget:
        text = "no budget covers raw estimates; expected no budget, or control.estimates released or private"
        raise UserError(text, document.where(("privacy", "budget")), "privacy.budget")
    if not control.is_algorithm_1:
        _check_search(experiment, document)
        return
    if "step_decay" in experiment.training.model_fields_set and experiment.training.step_decay != "sqrt":
        found = experiment.training.step_decay
        text = f"the controller divides the step size by the square root of the interval; expected sqrt, found {found}"
        raise UserError(text, document.where(("training", "step_decay")), "training.step_decay")


def _check_search(experiment: ExperimentFile, document: Document) -> None:
    """Raise for what the controller of budgets and targets cannot do."""
    control = experiment.control
    if control.estimates != "released":
        text = "with a budget or a target nothing is estimated; expected released"
        raise UserError(
            f"{text}, found {control.estimates}", document.where(("control", "estimates")), "control.estimates"
        )
    if control.allow_idle or control.solver != "exact":
        key = "allow_idle" if control.allow_idle else "solver"
        text = "budget and target plan without problem P; expected the default"
        raise UserError(text, document.where(("control", key)), f"control.{key}")
    if experiment.training.participation != 1:
        text = "with a budget or a target all devices of an edge server take part; expected 1"
        where = document.where(("training", "participation"))
        raise UserError(f"{text}, found {experiment.training.participation:g}", where, "training.participation")
    if control.trust == "weighed" and not _may_leave_trust(experiment):
        text = "trust is weighed against noise that devices add to their steps; expected method.privacy hierarchical"
        raise UserError(
            f"{text} with noise: steps, or trust: used", document.where(("control", "trust")), "control.trust"
        )
    until = experiment.training.until
    if control.accuracy is not None and until is not None and until.accuracy != control.accuracy:
        text = f"expected the same as control.accuracy, {control.accuracy:g}, or only one of the two"
        raise UserError(f"{text}; found {until.accuracy:g}", document.where(("training", "until")), "training.until")


def _may_leave_trust(experiment: ExperimentFile) -> bool:
    privacy = experiment.method.privacy
    return isinstance(privacy, HierarchicalOptions) and privacy.noise == "steps"


def _with_end(experiment: ExperimentFile) -> ExperimentFile:
    """With the end of the run that `control.accuracy` states."""
    control = experiment.control
    if not control.enabled or control.accuracy is None:
        return experiment
    until = {"until": UntilSection(accuracy=control.accuracy)}
    return experiment.model_copy(update={"training": experiment.training.model_copy(update=until)})


def _with_privacy_defaults(experiment: ExperimentFile, axes: rules.Axes) -> ExperimentFile:
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
        changed["privacy"] = experiment.privacy.model_copy(update={"calibration": rules.default_calibration(axes)})
    if placement.private and schedule.measures == "secants":
        changed["control"] = experiment.control.model_copy(update={"estimates": "oracle"})
    return experiment.model_copy(update=changed)
