"""From a document to a checked experiment, with the defaults that its method makes of keys that are not stated."""

from __future__ import annotations

from typing import Any

from h2fdp.config import Document, check
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.combinations import problems
from h2fdp.experiment.schema import ExperimentFile, horizon
from h2fdp.privacy import placement_of
from h2fdp.schedules.schedule_section import chosen, reconciled
from h2fdp.topology import Topology


def check_experiment(document: Document) -> ExperimentFile:
    """The document as an experiment, with the defaults of its method.

    Raises:
        UserError: with every problem of the file.
    """
    experiment = _with_one_schedule(check(ExperimentFile, document), document)
    found = [Problem(text, document.where(key.split(".")), key) for key, text in problems(experiment)]
    if found:
        raise UserError(found)
    _check_control(experiment, document)
    return _with_privacy_defaults(experiment)


def check_tiers(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
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


def _with_one_schedule(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """With `control.enabled` and the method's schedule in agreement; the schedule is what is read from here on."""
    try:
        schedule, control = reconciled(experiment.method.schedule, experiment.control)
    except UserError as error:
        found = [Problem(each.text, document.where(each.key.split(".")), each.key) for each in error.problems]
        raise UserError(found) from None
    method = experiment.method.model_copy(update={"schedule": schedule})
    return experiment.model_copy(update={"method": method, "control": control})


def _check_control(experiment: ExperimentFile, document: Document) -> None:
    """Raise for what the controller cannot do.

    It weighs costs against the noise; accounted noise would have to be known before its choices are.
    """
    if not chosen(experiment.method.schedule).controlled:
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
    schedule = chosen(experiment.method.schedule)
    if schedule.fixed_step_size:
        update["step_decay"] = "none"
    changed: dict[str, Any] = {"training": training.model_copy(update=update)}
    if placement.private and schedule.measures == "secants":
        changed["control"] = experiment.control.model_copy(update={"estimates": "oracle"})
    return experiment.model_copy(update=changed)
