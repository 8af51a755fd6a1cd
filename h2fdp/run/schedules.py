"""From `method.schedule` and the parts of a run to the schedule that decides its intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.errors import UserError
from h2fdp.experiment.schema import horizon
from h2fdp.radio import interval_cost
from h2fdp.schedules import (
    AdaptiveSchedule,
    AliSchedule,
    Budget,
    BudgetControl,
    ClosedFormRule,
    ControlledNetwork,
    ControlSection,
    FixedSchedule,
    NoiseDecay,
    ResourceBudgetSchedule,
    Schedule,
    SearchRule,
    draw_participants,
)
from h2fdp.schedules.fixed import shared
from h2fdp.theory import DpSgdNoise, DriftConstants, PrivacyTerms

if TYPE_CHECKING:
    from h2fdp.run.setup import RunSetup


def schedule_of(run: RunSetup) -> Schedule:
    """The schedule at the start of a run."""
    return _SCHEDULES[run.config.method.schedule.name](run)


def adaptive_schedule(run: RunSetup, section: ControlSection) -> AdaptiveSchedule:
    """Algorithm 1 of H2FDP under these settings."""
    clip_norm = run.config.training.clip_norm
    assert clip_norm is not None, "the controller weighs costs against noise"
    privacy, facts = run.config.privacy, run.blueprint.facts()
    network = ControlledNetwork(
        [subnet.name for subnet in facts],
        run.topology.sizes,
        _participation(run),
        np.array([float(subnet.noise_source == "edge") for subnet in facts]),
    )
    terms = PrivacyTerms(
        run.initial.numel(),
        float(run.blueprint.rates.max()),
        clip_norm,
        privacy.epsilon,
        privacy.delta,
        privacy.c2,
        privacy.c2 if privacy.v2 is None else privacy.v2,
    )
    joules = run.topology.compute.joules_per_step
    return AdaptiveSchedule(section, horizon(run.config), network, run.rhythm, run.costs, terms, joules)


def _participation(run: RunSetup) -> np.ndarray:
    return shared(run.topology.sizes, run.config.training.participation)


def _fixed(run: RunSetup) -> Schedule:
    training = run.config.training
    planned = training.intervals * run.local_steps
    last_slot = None if run.iterations is None or run.iterations >= planned else run.iterations
    return _steady(run, last_slot)


def _steady(run: RunSetup, last_slot: int | None) -> FixedSchedule:
    training, sizes = run.config.training, run.topology.sizes
    decay, share = training.step_decay, training.participation
    return FixedSchedule(run.local_steps, training.step_size, decay, sizes, share, last_slot)


def _adaptive(run: RunSetup) -> Schedule:
    return adaptive_schedule(run, run.config.control)


def _noise_decay(run: RunSetup) -> Schedule:
    section = run.config.method.schedule
    assert section.factor is not None
    assert section.patience is not None
    assert section.least is not None
    # R_c is counted at noise that stays: here the account ends the run (`RunSetup.budgets`).
    return NoiseDecay(_steady(run, None), section.factor, section.patience, section.least)


def _ali(run: RunSetup) -> Schedule:
    section, training = run.config.method.schedule, run.config.training
    iterations = run.most_iterations
    if iterations is None:
        text = "expected how many local iterations there may be, since no privacy budget says so"
        raise UserError(text, key="method.schedule.iterations")
    noise = _step_noise(run)
    if section.name == "ali-dpfl":
        assert section.curvature_from is not None
        assert section.form is not None
        rule: ClosedFormRule | SearchRule = ClosedFormRule(
            noise, section.curvature, section.heterogeneity, section.curvature_from, section.form
        )
    else:
        assert section.nearness is not None
        assert section.least_gap is not None
        rule = SearchRule(noise, training.step_size, section.nearness, section.least_gap, _drift(run))
    return AliSchedule(rule, training.intervals, iterations, training.step_size, _participation(run))


def _step_noise(run: RunSetup) -> DpSgdNoise:
    """sigma, C, d and B = min_i q_i D_i, at least 1."""
    clip_norm, multiplier = run.config.training.clip_norm, run.step_noise_multiplier
    assert clip_norm is not None, "steps are clipped"
    assert multiplier is not None, "steps are noisy"
    batch = max(1.0, float((run.blueprint.rates * run.data.sizes).min()))
    return DpSgdNoise(clip_norm=clip_norm, noise_multiplier=multiplier, parameters=run.initial.numel(), batch=batch)


def _drift(run: RunSetup) -> DriftConstants | None:
    section = run.config.method.schedule
    if section.lipschitz is None or section.smoothness is None or section.divergence is None:
        return None
    return DriftConstants(section.lipschitz, section.smoothness, section.divergence)


def _resource_budget(run: RunSetup) -> Schedule:
    section, training, key = run.config.method.schedule, run.config.training, "method.schedule"
    budgets = []
    if section.joules is not None:
        budgets.append(Budget("energy_j", section.joules, lambda interval: _prices(run, interval)[0], f"{key}.joules"))
    if section.seconds is not None:
        budgets.append(Budget("clock_s", section.seconds, lambda interval: _prices(run, interval)[1], f"{key}.seconds"))
    if section.units is not None:
        assert section.step_cost is not None
        assert section.aggregation_cost is not None
        budgets.append(
            Budget.stated("units", section.units, section.step_cost, section.aggregation_cost, f"{key}.units")
        )
    assert section.control_parameter is not None
    assert section.growth is not None
    assert section.longest is not None
    control = BudgetControl(section.control_parameter, section.growth, section.longest)
    return ResourceBudgetSchedule(budgets, control, training.step_size, _participation(run), _drift(run))


def _prices(run: RunSetup, interval: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(c, b) in joules and in seconds of the clock, of an interval of those that it draws; who will fail is not known.

    A local step costs what devices spend on it, and the time of one. The rest of an interval of one step is its
    aggregation; local aggregations of longer ones come on top, and are charged when they have happened.
    """
    counts, streams = _participation(run).tolist(), run.blueprint.streams
    rows = [
        draw_participants(streams, subnet.name, interval, subnet.size, count)
        for subnet, count in zip(run.topology.subnets, counts, strict=True)
        if count
    ]
    numbers = [number for number, count in enumerate(counts) if count]
    cost = interval_cost(run.costs.drawn(interval), run.topology, numbers, rows, [(1,)] * len(numbers))
    joules, seconds = float(cost.compute_energy_j.sum()), run.topology.compute.seconds_per_step
    return (joules, cost.energy_j - joules), (seconds, cost.clock_s - seconds)


_SCHEDULES: dict[str, Callable[[RunSetup], Schedule]] = {
    "fixed": _fixed,
    "h2fdp": _adaptive,
    "ali-dpfl": _ali,
    "ali-dpfl-v1": _ali,
    "resource-budget": _resource_budget,
    "noise-decay": _noise_decay,
}
