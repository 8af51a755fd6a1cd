"""The intervals of a run, planned without running them: what observers will hold, the last model's noise, the costs.

Calibration, budgets, the dry run and the reports before a run all read this one forecast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from h2fdp.costs.kinds import counted_in
from h2fdp.errors import UserError
from h2fdp.privacy import Accounts, Observer, Release
from h2fdp.privacy.budget_filter import NoiseAllowance
from h2fdp.privacy.releases import AlikeReleases
from h2fdp.protocol import InProcessNodes, IntervalPlan
from h2fdp.protocol.cloud import Cloud, NoiseChoice
from h2fdp.protocol.planned_releases import NoiseOnModel, noise_and_gradients
from h2fdp.run.prelude import add_planned, plan_of
from h2fdp.run.setup import RunSetup
from h2fdp.schedules.fixed import FixedOptions


@dataclass(frozen=True)
class EqualIntervals:
    """Intervals that are planned alike.

    Attributes:
        plan: of the first of them.
        cloud: plans it, and knows its releases.
        times: how many they are.
    """

    plan: IntervalPlan
    cloud: Cloud
    times: int = 1

    def releases(self) -> Iterator[AlikeReleases]:
        """The releases of the first of these intervals, once for all subnets that look alike."""
        return self.cloud.alike_releases(self.plan)


def forecast(setup: RunSetup, *, by_participants: bool = True) -> Iterator[EqualIntervals]:
    """The plans of all intervals, in order, with the participants and the faults that the run will draw.

    Where the schedule learns during the run these are the choices that it would make if it learned nothing. Intervals
    that are alike but for their step size come as one.

    Args:
        by_participants: intervals in which other devices take part are not alike.
    """
    cloud = setup.cloud(InProcessNodes({}))
    intervals, watched, accounts = setup.config.training.intervals, setup.watched, setup.empty_accounts()
    chosen = None if watched is None else noise_choice(setup, accounts)
    fixed = isinstance(setup.config.method.schedule, FixedOptions) and watched is None
    interval = 0
    while interval < intervals and not (cloud.ended and interval > 0):
        known = fixed and interval == 0
        plan = setup.first_plan if known else cloud.plan(interval, chosen)
        if watched is not None:
            accounts.add_alike(cloud.alike_releases(plan))
            if watched.exceeded(accounts) is not None:
                return
        drawn = by_participants and plan.participants < setup.topology.devices
        times = 1 if drawn or watched is not None else cloud.alike(interval)
        yield EqualIntervals(plan, cloud, times)
        cloud.skip(plan, times)
        interval += times


def noise_choice(setup: RunSetup, accounts: Accounts) -> NoiseChoice | None:
    """The rule by which each interval's noise follows from these accounts; None where noise stays as calibrated.

    A device is expected to take part in the intervals that are left as often as the devices of its subnet do now.

    Args:
        accounts: of the run, which the caller keeps up to date.
    """
    if setup.watched is None or setup.traits.scales_noise or setup.traits.ends_by_account:  # the filter ends the run
        return None
    allowance = NoiseAllowance(setup.watched, accounts)

    def chosen(plan: IntervalPlan, releases: Sequence[Release]) -> float:
        planned = setup.config.training.intervals - plan.interval
        left = min(planned, plan.decision.intervals or planned)
        taking = {name: len(part.rows) / setup.sizes[name] for name, part in plan.subnets.items()}
        return allowance.factor(releases, {name: max(1.0, left * share) for name, share in taking.items()})

    return chosen


def first_interval(setup: RunSetup) -> IntervalPlan:
    """The plan of the first interval if nothing fails in it: what is announced before a run."""
    if (first := next(forecast(setup.without_faults()), None)) is None:
        budgets = ", ".join(f"{observer} {epsilon:g}" for observer, epsilon in budgets_of(setup).items())
        text = f"even the first interval, with most noise, exceeds a budget ({budgets}); expected larger numbers"
        raise UserError(text, key="privacy.budget" if setup.config.privacy.budget else "privacy.epsilon")
    return first.plan


def planned_accounts(setup: RunSetup, model: ModelNoise | None = None) -> Accounts:
    """The accounts after all planned intervals.

    Where a schedule learns they are a forecast: its choices from what it knows before the run. Of a schedule that
    spends a number of local iterations, they are those of all of them.

    Args:
        model: to which the same plans are added.
    """
    if setup.traits.counts_iterations:
        setup = exhausted(setup)
    accounts = add_planned(setup, setup.empty_accounts()) if setup.before else setup.empty_accounts()
    for expected in forecast(setup):
        accounts.add_alike(expected.releases(), times=expected.times)
        if model is not None:
            model.add(expected)
    return accounts


def exhausted(setup: RunSetup) -> RunSetup:
    """The setup in which the same devices take every local iteration that there may be, one an interval."""
    config, iterations = setup.config, setup.iterations
    assert iterations is not None, "this schedule spends iterations"
    method = config.method.model_copy(update={"schedule": FixedOptions()})
    training = config.training.model_copy(update={"intervals": iterations, "local_steps": 1})
    changed = config.model_copy(update={"method": method, "training": training})
    return replace(setup, config=changed, local_steps=1)


def rough_accounts(setup: RunSetup, intervals: int | None = None) -> Accounts:
    """The accounts after intervals that are all like the first, if nothing fails in it.

    Args:
        intervals: by default those of the planned run, of which each device has its turns: then these are
            `planned_accounts` where all intervals are alike and all devices take part.
    """
    planned = forecast(setup.without_faults(), by_participants=False)
    expected = next(each for each in planned if each.plan.participants)  # before that, devices that move are nowhere
    share = expected.plan.participants / setup.topology.devices
    accounts = add_planned(setup, setup.empty_accounts())
    times = max(1, round(setup.config.training.intervals * share)) if intervals is None else intervals
    accounts.add_alike(expected.releases(), times=times)
    return accounts


class ModelNoise:
    """Adds up the noise on the global model over the planned intervals of a run.

    Where intervals are alike but for their step size, noise on sums of gradients is proportional to it, and that on
    whole updates or models does not depend on it. Where the file states a law of its own, that says what is left of the
    noises of a device or an edge server together.
    """

    def __init__(self, setup: RunSetup) -> None:
        self._setup, self._facts = setup, {each.name: each for each in setup.blueprint.facts}
        self._variance = self._way = 0.0
        self._streams: dict[tuple[str, int], list[float]] = {}

    def add(self, expected: EqualIntervals) -> None:
        """The next intervals."""
        plan, sizes = expected.plan, [expected.plan.decision.step_size]
        variance, gradients = noise_and_gradients(plan, self._facts, self._setup.noise)
        if expected.times > 1:
            schedule, those = self._setup.schedule(), range(plan.interval, plan.interval + expected.times)
            sizes = [schedule.decide(each, 0).step_size for each in those]
        grows = self._setup.placement.clips in ("gradient", "record")
        self._variance += variance * sum((size / sizes[0]) ** 2 if grows else 1.0 for size in sizes)
        self._way += gradients * sum(sizes)
        if self._setup.blueprint.law is not None:
            self._add_to_streams(plan)

    def _add_to_streams(self, plan: IntervalPlan) -> None:
        for (name, part), weight in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
            place = self._facts[name].place
            assert place is not None, "somebody adds noise"
            for arrived in part.aggregations():
                levels = weight * place.parts(arrived.levels, arrived.weights)
                for row, level in zip([-1] if place.by_node else arrived.rows.tolist(), levels.tolist(), strict=True):
                    self._streams.setdefault((name, row), []).append(level)

    @property
    def sum(self) -> NoiseOnModel:
        """The noise of all intervals so far."""
        if (law := self._setup.blueprint.law) is None:
            return NoiseOnModel(self._variance**0.5, self._way)
        return NoiseOnModel(sum(law.variance(np.array(each)) for each in self._streams.values()) ** 0.5, self._way)


def noise_on_model(setup: RunSetup) -> NoiseOnModel:
    """The noise on the model of the planned run."""
    assert setup.noise is not None, "there is no noise to compare"
    if setup.on_model is not None:
        return setup.on_model
    model = ModelNoise(setup)
    for expected in forecast(setup.without_faults(), by_participants=False):
        model.add(expected)
    return model.sum


def budgets_of(setup: RunSetup) -> Mapping[Observer, float]:
    """The epsilon of each observer that ends the run.

    Where the noise falls during the run, or intervals are longer or shorter than it was made for, nothing but the
    account keeps to the target: then it is a budget of every observer that has none.
    """
    stated, schedule = setup.config.privacy.budget, setup.traits
    calibrated = setup.target is not None and schedule.foreseen  # to exactly what the run will release
    limited = setup.iterations is not None and not schedule.keeps_to_iterations and not calibrated
    if setup.noise is None or setup.leaks or not (schedule.ends_by_account or limited):
        return stated
    return dict.fromkeys(setup.observers, setup.config.privacy.epsilon) | dict(stated)


_MOST_CHANNELS = 5_000_000  # that are drawn before a run, a few seconds of them


@dataclass(frozen=True)
class PlannedWork:
    """The work of all intervals together, and the network's costs of it.

    Attributes:
        costs: by the columns of `COSTS`, what the metrics have of these after the last interval; `kind`: `exact`, those
            that the run ends with; `at most`, where it may end early; `forecast`, where the schedule decides during the
            run; `estimate`, of a network of which not all channels are drawn beforehand.
    """

    intervals: int
    slots: int
    local_aggregations: int
    steps: int
    costs: dict[str, Any]


def nearness(costs: Mapping[str, Any]) -> str:
    """The words before a number of `PlannedWork.costs`."""
    return {"exact": "", "at most": "at most "}.get(costs["kind"], "about ")


def planned_work(run: RunSetup) -> PlannedWork:
    """The planned intervals, under the channels, the participants and the faults that the run will draw.

    Of a very large network the first channels and participants stand for all.
    """
    most, draw = max(1, _MOST_CHANNELS // run.topology.devices), run.blueprint.draw
    drawn_all = run.config.training.intervals <= most
    intervals = slots = local = steps = 0
    spent = dict.fromkeys((each.column for each in counted_in(run.topology)), 0.0)
    for part in run.statistics:
        for column, more in part.bill.columns(plan_of(part)[1]).items():
            spent[column] += more
    for expected in forecast(run, by_participants=drawn_all):
        plan, times = expected.plan, expected.times
        intervals += times
        slots += times * plan.decision.local_steps
        local += times * len(run.aggregation_times.offsets(plan.decision.local_steps))
        steps += times * plan.device_steps if draw is None else round(times * plan.device_steps * draw.rate)
        drawn = times if drawn_all else max(1, times * most // run.config.training.intervals)
        for interval in range(plan.interval, plan.interval + drawn):
            planned = replace(plan, interval=interval, began_s=spent["clock_s"])
            for column, more in run.bill.columns(planned).items():
                spent[column] += more * (times / drawn)
    drawn_all &= draw is None  # participants are drawn during the run
    kind = "exact" if drawn_all else "estimate"
    if not run.traits.foreseen:
        kind = "forecast"
    elif drawn_all and (budgets_of(run) or run.config.training.until is not None):
        kind = "at most"
    return PlannedWork(intervals, slots, local, steps, {**spent, "kind": kind})
