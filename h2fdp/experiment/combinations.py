"""Which points on the five axes mean something, and are covered by an account."""

from __future__ import annotations

from collections.abc import Iterator

from h2fdp.experiment.schema import ExperimentFile
from h2fdp.privacy import Request, placement_of
from h2fdp.schedules import Rhythm
from h2fdp.schedules.schedule_section import chosen
from h2fdp.training.objectives import objective_of

_LONGEST = 10_000  # local steps of an interval that a schedule could choose

Found = Iterator[tuple[str, str]]


def problems(experiment: ExperimentFile) -> Found:
    """(key, what is wrong and would be right) of each combination that means nothing, or that no account covers."""
    yield from _of_state(experiment)
    yield from placement_of(experiment.method.privacy).problems(_request(experiment))
    yield from _of_epochs(experiment)
    yield from _of_schedule(experiment)
    yield from _of_noise_under_a_schedule(experiment)


def _of_state(experiment: ExperimentFile) -> Found:
    objective, server = experiment.method.objective.name, experiment.method.server.name
    for name in ("scaffold", "feddyn"):
        if (objective == name) != (server == name):
            text = f"devices and cloud keep {name}'s state together; expected objective {name} with server {name}"
            yield f"method.{'server' if objective == name else 'objective'}", text


def _of_epochs(experiment: ExperimentFile) -> Found:
    method, key = experiment.method, "training.local_epochs"
    if experiment.training.local_epochs is None:
        return
    if not chosen(method.schedule).allows_epochs:
        yield key, "this schedule counts in steps; expected local_steps"
    if method.privacy.name == "dp-sgd" and method.privacy.noise_multiplier is not None:
        text = "a run under a given noise_multiplier ends after R_c local steps, which need not be whole epochs"
        yield key, f"{text}; expected local_steps"


def _of_schedule(experiment: ExperimentFile) -> Found:
    method, training = experiment.method, experiment.training
    schedule, name = chosen(method.schedule), method.schedule.name
    stated = "step_decay" in training.model_fields_set and training.step_decay != "none"
    if stated and schedule.fixed_step_size:
        text = f"the step size of {name} is the same in all intervals; expected none, found sqrt"
        yield "training.step_decay", text
    if schedule.metered and method.topology != "star" and training.aggregations_per_interval != 0:
        text = "local aggregations cost more in longer intervals, which the budget does not foresee"
        yield "method.schedule", f"{text}; expected training.aggregations_per_interval: 0, or topology star"
    if schedule.weighs_step_noise and method.privacy.name != "dp-sgd":
        text = f"{name} weighs local steps against the noise on each; expected privacy dp-sgd"
        yield "method.schedule", text


def _of_noise_under_a_schedule(experiment: ExperimentFile) -> Found:
    schedule, name, control = chosen(experiment.method.schedule), experiment.method.schedule.name, experiment.control
    if not placement_of(experiment.method.privacy).private:
        if schedule.scales_noise:
            yield "method.schedule", "there is no noise to decay; expected a placement with noise"
        return
    if experiment.privacy.calibration == "accounted" and not (schedule.foreseen or schedule.controlled):
        yield "privacy.calibration", f"expected paper: what {name} will do is not known before the run"
    if schedule.measures != "secants":
        return
    if experiment.method.privacy.name != "dp-sgd":
        text = f"devices tell {name} what they measured beside raw updates, which they do not send here"
        yield "method.schedule", f"{text}; expected lipschitz, smoothness and divergence, or privacy none or dp-sgd"
        return
    if control.estimates == "private":
        text = f"expected oracle or released: what {name} measures has no range to be released in"
        yield "control.estimates", text
    elif control.estimates == "released" and "estimates" in control.model_fields_set:
        text = f"{name} has devices measure constants of their losses, which leaks"
        yield "control.estimates", f"{text}; expected oracle (the run is marked), or the constants in method.schedule"


def _request(experiment: ExperimentFile) -> Request:
    """What a placement judges."""
    method, training, objective = experiment.method, experiment.training, objective_of(experiment.method.objective)
    schedule = chosen(method.schedule)
    step_size = schedule.largest_step_size(training.step_size, training.local_steps, training.intervals)
    local_steps = _LONGEST if schedule.varies_tau or training.local_steps is None else training.local_steps
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
        foreseen=schedule.foreseen,
        controlled=schedule.controlled,
    )
