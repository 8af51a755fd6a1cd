"""The schedule `resource-budget`: chooses tau for each interval within limits on what training may spend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from h2fdp.config.fields import Expect, Magnitude, NonNegative, Positive
from h2fdp.errors import UserError
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import Horizon
from h2fdp.schedules.drift import DriftConstants, affordable_local_steps
from h2fdp.schedules.feedback import IntervalObservation
from h2fdp.schedules.loss_probes import drift_constants, mean_loss
from h2fdp.schedules.ranges import require, require_count
from h2fdp.schedules.resource_prices import ResourceAccount, ResourceBudget, radio_prices
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import DriftOptions


@dataclass(frozen=True)
class BudgetControl:
    """How the controller searches (Wang et al. 2019).

    Attributes:
        control_parameter: phi; 0.025 served an SVM, 5e-5 a CNN.
        growth: gamma, how many times longer the next interval may be.
        longest: tau_max.
        constant: a tau that is not searched for, as in what the controller is compared with.

    Raises:
        UserError: a number out of its range.
    """

    control_parameter: float
    growth: float = 10.0
    longest: int = 100
    constant: int | None = None

    def __post_init__(self) -> None:
        phi = self.control_parameter
        require(0 < phi < math.inf, "control_parameter", phi, "a finite number above 0")
        require(1 <= self.growth < math.inf, "growth", self.growth, "a finite number of at least 1")
        require_count(self.longest, 1, "longest")
        if self.constant is not None:
            require_count(self.constant, 1, "constant")


class ResourceBudgetSchedule(Schedule):
    """Distributed gradient descent within budgets.

    1. The first interval has one local step; so has one after a model that had to be given up, and so have all
       while nothing is known of the losses.
    2. tau is where `controller_objective` is least over 1 .. min{gamma tau, tau_max}, T(tau) by the tightest budget,
       whose c and b are the means of the intervals so far and of the coming one.
    3. An interval is admitted while every budget would keep a step and an aggregation more. The first that is not is
       cut to what is left and is the last: with the prices true, no budget is overdrawn.
    4. The model of least loss is returned. Where the loss is no number, the interval's model is given up for the one
       it started from.

    Args:
        budgets: at least one, each of another name.
        step_size: eta, the same in all intervals.
        participation: (N,) how many devices of each subnet take part.
        constants: the operator's rho, beta and delta, and losses are then those on public records; None has devices
            measure constants and losses on their own.

    Raises:
        UserError: no budget, two of a name, one that is spent before the first interval ends, a step size that is none.
    """

    observes: ClassVar[bool] = True

    def __init__(
        self,
        budgets: Sequence[ResourceBudget],
        control: BudgetControl,
        step_size: float,
        participation: np.ndarray,
        constants: DriftConstants | None = None,
    ) -> None:
        names = [budget.name for budget in budgets]
        require(0 < len(set(names)) == len(names), "budgets", names, "one budget or more, each of another name")
        require(0 < step_size < math.inf, "step_size", step_size, "a finite number above 0")
        self._accounts = [ResourceAccount(budget) for budget in budgets]
        self._control = control
        self._step_size = step_size
        self._participation = participation
        self._stated = constants
        self._learned: DriftConstants | None = None
        self._last_tau: int | None = None
        self._ended = False
        self._least_loss = math.inf
        self._best: Tensor | None = None
        self._loss: float | None = None  # of the model that the interval ended with, until `kept` asks for one
        self._started: Tensor | None = None  # the model that the interval started from
        for account in self._accounts:
            if not account.allows_one_more(0):
                budget = account.budget
                text = f"expected at least {sum(budget.prices(0)):g}, one local step and one aggregation"
                raise UserError(f"{text}, found {budget.total:g}", key=budget.key or budget.name)

    @property
    def measures_secants(self) -> bool:
        """Whether the operator left the constants to be measured."""
        return self._stated is None

    @property
    def scores(self) -> bool:
        """Whether the losses that the best model is known by are those on public records."""
        return self._stated is not None

    def ends(self, slot: int) -> bool:
        """After the last interval that every budget allows."""
        following = self._accounts[0].intervals
        return self._ended or not all(account.allows_one_more(following) for account in self._accounts)

    def decide(self, interval: int, slot: int) -> Decision:
        tau, last, wanted = self._plan(interval)
        known = self._constants
        reasons = {
            "interval": interval + 1,
            "slot": slot,
            "tau": tau,
            "step_size": self._step_size,
            "wanted": wanted,
            "last": last,
            "constants": {
                "rho": known.lipschitz if known else None,
                "beta": known.smoothness if known else None,
                "delta": known.divergence if known else None,
                "phi": self._control.control_parameter,
                "gamma": self._control.growth,
                "tau_max": self._control.longest,
                "last_tau": self._last_tau,
            },
            "budgets": {account.budget.name: _row(account, interval) for account in self._accounts},
            "least_loss": self._least_loss if self._best is not None else None,
        }
        return Decision(tau, self._step_size, self._participation, reasons)

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)
        self._started = seen.model
        if self._stated is None and seen.secants is not None:
            self._learned = drift_constants(seen.secants) or self._learned
            self._loss = mean_loss(seen.secants)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        """See `Schedule.skipped`; exact with stated constants, as long as no model has to be given up."""
        _, self._ended, _ = self._plan(interval)
        self._accounts = [account.charged(interval, local_steps, spent) for account in self._accounts]
        self._last_tau = local_steps

    def scored(self, loss: float) -> None:
        self._loss = loss

    def kept(self, model: Tensor) -> Tensor:
        loss, started = self._loss, self._started
        self._loss = self._started = None
        if loss is None:
            return model
        if not math.isfinite(loss):
            assert started is not None, "a loss comes after an observation"
            self._last_tau = None
            return started
        if loss < self._least_loss:
            self._least_loss, self._best = loss, model
        return model

    def returned(self, model: Tensor) -> Tensor:
        """The model of least loss."""
        return model if self._best is None else self._best

    def state(self) -> dict[str, Any]:
        """See `Schedule.state`; between `kept` and the next interval."""
        learned = self._learned
        return {
            "accounts": [account.state() for account in self._accounts],
            "learned": None if learned is None else dict(vars(learned)),
            "last_tau": self._last_tau,
            "ended": self._ended,
            "least_loss": self._least_loss,
            "best": self._best,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._accounts = [
            account.loaded(taken) for account, taken in zip(self._accounts, state["accounts"], strict=True)
        ]
        self._learned = None if state["learned"] is None else DriftConstants(**state["learned"])
        self._last_tau, self._ended = state["last_tau"], state["ended"]
        self._least_loss, self._best = state["least_loss"], state["best"]

    @property
    def _constants(self) -> DriftConstants | None:
        return self._learned if self._stated is None else self._stated

    def _plan(self, interval: int) -> tuple[int, bool, int]:
        """tau, whether the interval is the last, and the tau that was wanted."""
        wanted = self._wanted(interval)
        if all(account.admits(interval, wanted) for account in self._accounts):
            return wanted, False, wanted
        return min(account.last_local_steps(interval, wanted) for account in self._accounts), True, wanted

    def _wanted(self, interval: int) -> int:
        """tau', before budgets cut it."""
        if self._control.constant is not None:
            return self._control.constant
        if self._last_tau is None or self._constants is None:
            return 1
        control = self._control
        longest = min(int(control.growth * self._last_tau), control.longest)
        prices = [account.expected(interval) for account in self._accounts]
        return affordable_local_steps(longest, prices, self._step_size, self._constants, control.control_parameter)


def _row(account: ResourceAccount, interval: int) -> dict[str, float]:
    """A budget's numbers."""
    step, aggregation = account.budget.prices(interval)
    expected = account.expected(interval)
    return {
        "R": account.budget.total,
        "used": account.used,
        "c": step,
        "b": aggregation,
        "mean_c": expected.step_cost,
        "mean_b": expected.aggregation_cost,
    }


class ResourceBudgetOptions(DriftOptions):
    """`resource-budget`.

    Attributes:
        joules: the energy that the run may spend; null is unlimited.
        seconds: the time on the simulated clock that the run may take; null is unlimited.
        units: a budget of your own, at the prices `step_cost` and `aggregation_cost`; null is unlimited.
        step_cost: c, what a local step costs in `units`.
        aggregation_cost: b, what a global aggregation costs in `units`.
        control_parameter: phi, what a step brings, which nobody knows; 0.025 served an SVM, 5e-5 a CNN.
        growth: gamma, how many times longer the next interval may be.
        longest: tau_max, the longest interval.
        constant: a fixed tau within the same budget, instead of a search.
    """

    name: Literal["resource-budget"] = "resource-budget"
    varies_tau: ClassVar[bool] = True
    fixed_step_size: ClassVar[bool] = True
    ends_by_account: ClassVar[bool] = True

    joules: Positive | None = None
    seconds: Positive | None = None
    units: Positive | None = None
    step_cost: NonNegative | None = None
    aggregation_cost: NonNegative | None = None
    control_parameter: Magnitude = 0.025
    growth: Annotated[float, Field(ge=1, le=1e6), Expect("a number from 1 to 1e6")] = 10.0
    longest: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] = 100
    constant: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] | None = None

    @property
    def metered(self) -> bool:
        return self.joules is not None or self.seconds is not None

    def longest_interval(self, horizon: Horizon) -> int:
        return self.constant or self.longest

    def build(self, context: ScheduleContext) -> ResourceBudgetSchedule:
        control = BudgetControl(self.control_parameter, self.growth, self.longest, self.constant)
        return ResourceBudgetSchedule(
            self._budgets(context), control, context.step_size, context.participation, self.drift
        )

    def _budgets(self, context: ScheduleContext) -> list[ResourceBudget]:
        metered = {"energy_j": (self.joules, "joules"), "clock_s": (self.seconds, "seconds")}
        budgets = [
            ResourceBudget(name, total, partial(_price, context, name), f"method.schedule.{key}")
            for name, (total, key) in metered.items()
            if total is not None
        ]
        if self.units is not None and self.step_cost is not None and self.aggregation_cost is not None:
            key = "method.schedule.units"
            budgets.append(ResourceBudget.stated("units", self.units, self.step_cost, self.aggregation_cost, key))
        return budgets

    @model_validator(mode="after")
    def _some_budget(self) -> ResourceBudgetOptions:
        if self.joules is None and self.seconds is None and self.units is None:
            raise ValueError("expected a budget: joules, seconds, or units with step_cost and aggregation_cost")
        of_units = (self.units, self.step_cost, self.aggregation_cost)
        if any(each is None for each in of_units) and any(each is not None for each in of_units):
            raise ValueError("expected units, step_cost and aggregation_cost together")
        return self


def _price(context: ScheduleContext, resource: str, interval: int) -> tuple[float, float]:
    return radio_prices(context, interval)[resource]
