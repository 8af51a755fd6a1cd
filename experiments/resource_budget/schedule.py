"""A resource budget as a schedule of one's own: tau for each interval within limits on what training may spend.

    method: {extends: fedavg, schedule: {name: "experiments.resource_budget:ResourceBudgetSchedule", joules: 3}}

After Wang et al. 2019, "Adaptive Federated Learning in Resource Constrained Edge Computing Systems".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from experiments.programs import require, require_count
from experiments.resource_budget.drift import (
    DeviceSecants,
    DriftConstants,
    affordable_local_steps,
    drift_constants,
    mean_loss,
    measure_secants,
    stated_drift,
)
from experiments.resource_budget.prices import ResourceAccount, ResourceBudget, radio_prices
from h2fdp.errors import UserError
from h2fdp.schedules import Decision, Horizon, IntervalObservation, OwnSchedule, ScheduleContext
from h2fdp.schedules.measuring import Measure


class ResourceBudgetSchedule(OwnSchedule):
    """Distributed gradient descent within budgets.

    1. The first interval has one local step; so has one after a model that had to be given up, and so have all
       while nothing is known of the losses.
    2. tau is where `controller_objective` is least over 1 .. min{gamma tau, tau_max}, T(tau) by the tightest budget,
       whose c and b are the means of the intervals so far and of the coming one.
    3. An interval is admitted while every budget would keep a step and an aggregation more. The first that is not is
       cut to what is left and is the last: with the prices true, no budget is overdrawn.
    4. The model of least loss is returned. Where the loss is no number, the interval's model is given up for the one
       it started from.

    Training ends after `training.intervals` at the latest, which T(tau) does not foresee.

    Args:
        joules: the energy that the run may spend; None is unlimited.
        seconds: the time on the simulated clock that the run may take; None is unlimited.
        units: a budget of your own, at the prices `step_cost` and `aggregation_cost`; None is unlimited.
        step_cost: c, what a local step costs in `units`.
        aggregation_cost: b, what a global aggregation costs in `units`.
        control_parameter: phi, what a step brings; 0.025 served an SVM, 5e-5 a CNN.
        growth: gamma, how many times longer the next interval may be.
        longest: tau_max, the longest interval.
        constant: a tau that is not searched for, within the same budget, as in what the controller is compared with.
        lipschitz, smoothness, divergence: the operator's rho, beta and delta, and losses are then those on public
            records; None has devices measure constants and losses on their own.

    Raises:
        UserError: no budget, one that is spent before the first interval ends, a number out of its range.
    """

    varies_tau: ClassVar[bool] = True
    fixed_step_size: ClassVar[bool] = True
    ends_by_account: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = True
    observes: ClassVar[bool] = True

    def __init__(
        self,
        joules: float | None = None,
        seconds: float | None = None,
        units: float | None = None,
        step_cost: float | None = None,
        aggregation_cost: float | None = None,
        control_parameter: float = 0.025,
        growth: float = 10.0,
        longest: int = 100,
        constant: int | None = None,
        lipschitz: float | None = None,
        smoothness: float | None = None,
        divergence: float | None = None,
    ) -> None:
        of_units = (units, step_cost, aggregation_cost)
        if any(each is None for each in of_units) and any(each is not None for each in of_units):
            raise UserError("expected units, step_cost and aggregation_cost together")
        require(0 < control_parameter < math.inf, "control_parameter", control_parameter, "a finite number above 0")
        require(1 <= growth < math.inf, "growth", growth, "a finite number of at least 1")
        require_count(longest, 1, "longest")
        if constant is not None:
            require_count(constant, 1, "constant")
        self._metered = {"energy_j": joules, "clock_s": seconds}
        self._units, self._prices = units, (step_cost or 0.0, aggregation_cost or 0.0)
        self._control_parameter, self._growth, self._longest, self._constant = (
            control_parameter, growth, longest, constant,
        )  # fmt: skip
        self._stated = stated_drift(lipschitz, smoothness, divergence)
        self._learned: DriftConstants | None = None
        self._last_tau: int | None = None
        self._ended = False
        self._least_loss = math.inf
        self._best: Tensor | None = None
        self._loss: float | None = None  # of the model that the interval ended with, until `kept` asks for one
        self._started: Tensor | None = None  # the model that the interval started from

    @property
    def measures(self) -> Measure | None:
        return measure_secants if self._stated is None else None

    @property
    def scores(self) -> bool:
        """Whether the losses that the best model is known by are those on public records."""
        return self._stated is not None

    def longest_interval(self, horizon: Horizon) -> int:
        return self._constant or self._longest

    def budgets(self) -> Sequence[ResourceBudget]:
        """What the run may spend, by resource."""
        keys = {"energy_j": "method.schedule.joules", "clock_s": "method.schedule.seconds"}
        found = [
            ResourceBudget(name, total, partial(_price, self.context, name), keys[name])
            for name, total in self._metered.items()
            if total is not None
        ]
        if self._units is not None:
            found.append(ResourceBudget.stated("units", self._units, *self._prices, "method.schedule.units"))
        return found

    def build(self, context: ScheduleContext) -> ResourceBudgetSchedule:
        """See `ScheduleTraits.build`.

        Raises:
            UserError: no budget, one that is spent before the first interval ends, local aggregations that it misses.
        """
        self.context = context
        metered = any(total is not None for total in self._metered.values())
        if metered and context.aggregation_times.offsets(self.longest_interval(context.horizon)):
            text = "local aggregations cost more in longer intervals, which the budget does not foresee"
            text += "; expected training.aggregations_per_interval: 0, or topology star"
            raise UserError(text, key="method.schedule")
        self._accounts = [ResourceAccount(budget) for budget in self.budgets()]
        if not self._accounts:
            text = "expected a budget: joules, seconds, or units with step_cost and aggregation_cost"
            raise UserError(text, key="method.schedule")
        for account in self._accounts:
            if not account.allows_one_more(0):
                budget = account.budget
                text = f"expected at least {sum(budget.prices(0)):g}, one local step and one aggregation"
                raise UserError(f"{text}, found {budget.total:g}", key=budget.key or budget.name)
        return self

    def ends(self, slot: int) -> bool:
        """After the last interval that every budget allows."""
        following = self._accounts[0].intervals
        return self._ended or not all(account.allows_one_more(following) for account in self._accounts)

    def choose(self, interval: int, slot: int) -> Decision:
        tau, last, wanted = self._plan(interval)
        known = self._constants
        reasons = {
            "interval": interval + 1,
            "slot": slot,
            "tau": tau,
            "step_size": self.context.step_size,
            "wanted": wanted,
            "last": last,
            "constants": {
                "rho": known.lipschitz if known else None,
                "beta": known.smoothness if known else None,
                "delta": known.divergence if known else None,
                "phi": self._control_parameter,
                "gamma": self._growth,
                "tau_max": self._longest,
                "last_tau": self._last_tau,
            },
            "budgets": {account.budget.name: _row(account, interval) for account in self._accounts},
            "least_loss": self._least_loss if self._best is not None else None,
        }
        return Decision(tau, self.context.step_size, self.context.participation, reasons)

    def observe(self, seen: IntervalObservation) -> None:
        self.skipped(seen.interval, seen.local_steps, seen.spent)
        self._started = seen.model
        if self._stated is None and seen.measured is not None:
            secants = DeviceSecants.of(seen.measured)
            self._learned = drift_constants(secants) or self._learned
            self._loss = mean_loss(secants)

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
        if self._constant is not None:
            return self._constant
        if self._last_tau is None or self._constants is None:
            return 1
        longest = min(int(self._growth * self._last_tau), self._longest)
        prices = [account.expected(interval) for account in self._accounts]
        return affordable_local_steps(longest, prices, self.context.step_size, self._constants, self._control_parameter)


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


def _price(context: ScheduleContext, resource: str, interval: int) -> tuple[float, float]:
    return radio_prices(context, interval)[resource]
