"""The budget of one resource (joules, seconds, or units of the operator), and what intervals cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from experiments.programs import require
from experiments.resource_budget.drift import BudgetPrices
from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.traffic import Tasks
from h2fdp.schedules import ScheduleContext, draw_participants

Prices = Callable[[int], tuple[float, float]]


@dataclass(frozen=True)
class ResourceBudget:
    """A limit, and what an interval takes of it.

    Attributes:
        name: of the resource; one that the metrics name (`energy_j`, `delay_s`, `clock_s`) is charged what intervals
            really cost, any other one its prices.
        total: R.
        key: where the user states it, for the message about a total that is too small; the name where it is empty.
        prices: interval k, counted from 0, to (c, b): what one local step and one aggregation of all that take part
            cost in it, as far as it is known before it begins. The same when asked again.

    Raises:
        UserError: a total that is not above 0.
    """

    name: str
    total: float
    prices: Prices
    key: str = ""

    def __post_init__(self) -> None:
        require(0 < self.total < math.inf, self.name, self.total, "a finite number above 0")

    @classmethod
    def stated(
        cls, name: str, total: float, step_cost: float, aggregation_cost: float, key: str = ""
    ) -> ResourceBudget:
        """With c and b that the operator states, the same in all intervals.

        >>> ResourceBudget.stated("tokens", 100.0, step_cost=1.0, aggregation_cost=5.0).prices(7)
        (1.0, 5.0)
        """
        return cls(name, total, partial(_always, (step_cost, aggregation_cost)), key)


@dataclass(frozen=True)
class ResourceAccount:
    """A budget and what has been taken of it.

    Attributes:
        used: so far.
        intervals: that have been charged.
        step_costs, aggregation_costs: the sums of c and b over these.
    """

    budget: ResourceBudget
    used: float = 0.0
    intervals: int = 0
    step_costs: float = 0.0
    aggregation_costs: float = 0.0

    def expected(self, interval: int) -> BudgetPrices:
        """R with the means of c and b over all intervals up to this one, which comes next."""
        step, aggregation = self.budget.prices(interval)
        count = self.intervals + 1
        return BudgetPrices(
            self.budget.total, (self.step_costs + step) / count, (self.aggregation_costs + aggregation) / count
        )

    def admits(self, interval: int, local_steps: int) -> bool:
        """Whether one more step and one more aggregation remain after an interval of tau steps: R > used + c (tau + 1)
        + 2 b."""
        step, aggregation = self.budget.prices(interval)
        return self._before_reserve(interval) > step * local_steps + aggregation

    def last_local_steps(self, interval: int, wanted: int) -> int:
        """floor((R - used - 2 b - c) / c), at least 1 and at most what is wanted: a last interval for what is left."""
        step, aggregation = self.budget.prices(interval)
        left = self._before_reserve(interval) - aggregation
        if step == 0 or left >= step * wanted:
            return wanted
        return math.floor(left / step) if left >= step else 1

    def allows_one_more(self, interval: int) -> bool:
        """Whether an interval of one local step overdraws nothing."""
        step, aggregation = self.budget.prices(interval)
        return self.used + step + aggregation <= self.budget.total

    def charged(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> ResourceAccount:
        """After an interval: what it really cost where that was metered, c tau + b where it was not."""
        step, aggregation = self.budget.prices(interval)
        return replace(
            self,
            used=self.used + spent.get(self.budget.name, step * local_steps + aggregation),
            intervals=self.intervals + 1,
            step_costs=self.step_costs + step,
            aggregation_costs=self.aggregation_costs + aggregation,
        )

    def state(self) -> dict[str, Any]:
        """What has been taken."""
        return {key: value for key, value in vars(self).items() if key != "budget"}

    def loaded(self, state: Mapping[str, Any]) -> ResourceAccount:
        """As it was when `state` was taken."""
        return replace(self, **state)

    def _before_reserve(self, interval: int) -> float:
        """R - used - what a step and an aggregation after this interval are expected to take."""
        expected = self.expected(interval)
        return self.budget.total - self.used - expected.step_cost - expected.aggregation_cost


def _always(prices: tuple[float, float], interval: int) -> tuple[float, float]:
    return prices


def radio_prices(context: ScheduleContext, interval: int) -> dict[str, tuple[float, float]]:
    """(c, b) of an interval by resource: joules, and seconds of the clock.

    They are those of the devices and the fading that the interval draws; who will fail is not known. A local step costs
    what devices spend on it, and the time of one. The rest of an interval of one step is its aggregation; local
    aggregations of longer ones come on top, and are charged when they have happened.
    """
    network, tasks = context.topology, {}
    for number, (subnet, count) in enumerate(zip(network.subnets, context.participation.tolist(), strict=True)):
        if count:
            rows = draw_participants(context.streams, subnet.name, interval, subnet.size, count)
            tasks[number] = Tasks.planned(rows, (1,), masked=context.exchanges[number] is not None)
    sums = next((sizes for sizes in context.exchanges if sizes is not None), None)
    cost = interval_cost(context.costs.drawn(interval), network, tasks, sums=sums)
    joules, seconds = float(cost.compute_energy_j.sum()), float(np.max(context.costs.step.seconds))
    return {"energy_j": (joules, cost.energy_j - joules), "clock_s": (seconds, cost.clock_s - seconds)}
