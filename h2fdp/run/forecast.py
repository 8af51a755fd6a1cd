"""The intervals of a run, planned without running them: what every observer will hold after them, and the last model.

Calibration, budgets, the dry run and the reports before a run all read this one forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from h2fdp.privacy import Accounts, Release
from h2fdp.privacy.budget_filter import NoiseAllowance
from h2fdp.privacy.releases import AlikeReleases
from h2fdp.protocol import InProcessNodes, IntervalPlan
from h2fdp.protocol.cloud import Cloud, NoiseChoice
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.run.setup import RunSetup
from h2fdp.schedules.fixed import FixedOptions

# What intervals of a fixed schedule are like, which calibration and reports all ask: large networks take seconds.
_PLANNED: WeakKeyDictionary[RunSetup, IntervalPlan] = WeakKeyDictionary()


@dataclass(frozen=True)
class EqualIntervals:
    """Intervals that are planned alike.

    Attributes:
        plan: of the first of them.
        releases: makes the rows that the ledger will have of it.
        alike: the same, once for all subnets that look alike.
        times: how many they are.
    """

    plan: IntervalPlan
    releases: Callable[[], Iterator[Release]]
    alike: Callable[[], Iterator[AlikeReleases]]
    times: int = 1


def forecast(setup: RunSetup, *, by_participants: bool = True) -> Iterator[EqualIntervals]:
    """The plans of all intervals, in order, with the participants and the faults that the run will draw.

    Where the schedule learns during the run these are the choices that it would make if it learned nothing. Intervals
    that are alike but for their step size come as one.

    Args:
        by_participants: intervals in which other devices take part are not alike.
    """
    cloud = setup.cloud(InProcessNodes({}))
    intervals, watched, accounts = setup.config.training.intervals, setup.watched, setup.empty_accounts()
    chosen = noise_choice(setup, accounts)
    for interval in range(intervals):
        if cloud.ended and interval > 0:
            return
        plan = cloud.plan(interval, chosen) if interval or watched is not None else _first_plan(setup, cloud)
        releases, alike = partial(cloud.releases, plan), partial(cloud.alike_releases, plan)
        if watched is not None:
            accounts.add_alike(alike())
            if watched.exceeded(accounts) is not None:
                return
        if cloud.repeats and not (by_participants and plan.participants < setup.topology.devices):
            yield EqualIntervals(plan, releases, alike, times=intervals)
            return
        yield EqualIntervals(plan, releases, alike)
        cloud.skip(plan)


def _first_plan(setup: RunSetup, cloud: Cloud) -> IntervalPlan:
    """The plan of the first interval, which a fixed schedule makes once for a setup."""
    if not isinstance(setup.config.method.schedule, FixedOptions):
        return cloud.plan(0)
    if setup not in _PLANNED:
        _PLANNED[setup] = cloud.plan(0)
    return _PLANNED[setup]


def noise_choice(setup: RunSetup, accounts: Accounts) -> NoiseChoice | None:
    """How the noise of each interval follows from these accounts; None where it is what it was made for.

    A device is expected to take part in the intervals that are left as often as the devices of its subnet do now.

    Args:
        accounts: of the run, brought up to date by whoever keeps them.
    """
    if setup.watched is None or not setup.chooses_noise:
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
    return next(forecast(setup.without_faults())).plan


def planned_accounts(setup: RunSetup) -> Accounts:
    """The accounts after all planned intervals.

    Where a schedule learns they are a forecast: its choices from what it knows before the run. Of a schedule that
    spends a number of local iterations, they are those of all of them.
    """
    if setup.traits.counts_iterations:
        setup = setup.exhausted()
    accounts = setup.empty_accounts()
    for expected in forecast(setup):
        accounts.add_alike(expected.alike(), times=expected.times)
    return accounts


def rough_accounts(setup: RunSetup) -> Accounts:
    """The accounts of the planned run if all of its intervals are like the first, and devices take turns.

    They are `planned_accounts` where all intervals are alike and all devices take part.
    """
    expected = next(forecast(setup.without_faults(), by_participants=False))
    share = expected.plan.participants / setup.topology.devices
    accounts = setup.empty_accounts()
    accounts.add_alike(expected.alike(), times=max(1, round(setup.config.training.intervals * share)))
    return accounts


def accounts_of_one_interval(setup: RunSetup) -> Accounts:
    """The accounts after the first planned interval, if nothing fails in it."""
    accounts = setup.empty_accounts()
    accounts.add_alike(next(forecast(setup.without_faults())).alike())
    return accounts


@dataclass(frozen=True)
class NoiseOnModel:
    """What the global model takes up in a run without faults, before the server's own update rule.

    If r is the noise `per_step`, the run descends by gradients g + N(0, r^2 I) on average, so that its ratio of noise
    to signal is r / |g|. Where gradients are clipped, |g| is at most the clip norm.

    Attributes:
        noise_std: of each coordinate, of all intervals' noise together; of noise at local steps to first order, as if
            the noise of one step did not change the gradients of the next.
        way: sum over all intervals of step size times the gradients that the average of the uploads adds up.
    """

    noise_std: float
    way: float

    @property
    def per_step(self) -> float:
        """r: the noise, over the length of the way that it would have gone along gradients of norm 1."""
        return self.noise_std / self.way


def noise_on_model(setup: RunSetup) -> NoiseOnModel:
    """That of the planned run.

    Where intervals are alike but for their step size, the noise is either proportional to it or does not depend on it:
    the first interval and the last one say how much is which.
    """
    assert setup.noise is not None, "there is no noise to compare"
    quiet = setup.without_faults()
    facts = {each.name: each for each in setup.blueprint.facts}
    variance = way = 0.0
    for expected in forecast(quiet, by_participants=False):
        first, gradients = noise_and_gradients(expected.plan, facts, setup.noise)
        sizes = _step_sizes(quiet, expected.plan, expected.times)
        fixed, by_square = first, 0.0
        if sizes[-1] != sizes[0]:
            last, _ = noise_and_gradients(_plan_of(quiet, expected.times - 1), facts, setup.noise)
            by_square = (first - last) / (sizes[0] ** 2 - sizes[-1] ** 2)
            fixed = first - by_square * sizes[0] ** 2
        variance += sum(fixed + by_square * size**2 for size in sizes)
        way += gradients * sum(sizes)
    return NoiseOnModel(max(variance, 0.0) ** 0.5, way)


def _step_sizes(setup: RunSetup, plan: IntervalPlan, times: int) -> list[float]:
    if times == 1:
        return [plan.decision.step_size]
    schedule = setup.schedule()
    return [schedule.decide(interval, 0).step_size for interval in range(times)]


def _plan_of(setup: RunSetup, interval: int) -> IntervalPlan:
    return setup.cloud(InProcessNodes({})).plan(interval)


def joules_of(setup: RunSetup) -> float:
    """Of all messages, if all intervals are like the first one."""
    plan = next(forecast(setup.without_faults(), by_participants=False)).plan
    return setup.interval_costs(plan)["energy_j"] * setup.config.training.intervals
