"""A privacy filter: training stops before an observer's budget would be exceeded (Feldman and Zrnic 2021).

How much is released next may depend on what was released before. Composition stays valid for the divergence of one
order that was fixed in advance, so each observer's order is chosen before the run and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from h2fdp.privacy.accounting import ORDERS, epsilon_at_order
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.observing import Observer


@dataclass(frozen=True)
class BudgetFilter:
    """Budgets in epsilon at one delta.

    Attributes:
        budgets: observer -> largest epsilon that it may hold about any device.
        orders: observer -> position in `ORDERS` of the order at which its spending is watched.
    """

    budgets: Mapping[Observer, float]
    delta: float
    orders: Mapping[Observer, int]

    @classmethod
    def planned(cls, budgets: Mapping[Observer, float], delta: float, interval: Accounts) -> BudgetFilter:
        """The filter whose orders allow the most intervals like this one.

        Args:
            interval: the accounts after one planned interval.
        """
        return cls(
            budgets,
            delta,
            {each: _longest_order(interval.rdp(each), budget, delta) for each, budget in budgets.items()},
        )

    @classmethod
    def of_plan(cls, budgets: Mapping[Observer, float], delta: float, planned: Accounts) -> BudgetFilter:
        """The filter at whose orders a planned run spends least.

        Args:
            planned: the accounts after it.
        """
        return cls(budgets, delta, {each: _cheapest_order(planned.rdp(each), delta) for each in budgets})

    def room(self, observer: Observer) -> float:
        """The largest divergence at the observer's order that its budget allows."""
        order = self.orders[observer]
        return self.budgets[observer] - float(_beyond_divergence(self.delta)[order])

    def spent(self, accounts: Accounts, observer: Observer) -> float:
        """Epsilon of the worst device at the observer's order; never below what the account over all orders says."""
        divergences = accounts.rdp(observer)
        if not divergences.size:
            return 0.0
        return float(np.max(epsilon_at_order(divergences, self.orders[observer], self.delta)))

    def exceeded(self, accounts: Accounts) -> Observer | None:
        """The first observer whose budget these accounts exceed."""
        return next((each for each, budget in self.budgets.items() if self.spent(accounts, each) > budget), None)


@lru_cache(maxsize=64)
def _beyond_divergence(delta: float) -> np.ndarray:
    """(len(ORDERS),) epsilon at an order minus the divergence: a term of order and delta alone, except where epsilon is
    cut off at 0."""
    return np.array([epsilon_at_order(np.ones(len(ORDERS)), order, delta) - 1 for order in range(len(ORDERS))])


def _longest_order(divergences: np.ndarray, budget: float, delta: float) -> int:
    """The order at which the worst device can take the most equal intervals within the budget."""
    if not divergences.size:
        return 0
    worst = divergences.max(axis=0)
    free = _beyond_divergence(delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        intervals = np.where(worst > 0, (budget - free) / worst, np.inf)
    return int(np.argmax(np.nan_to_num(intervals, nan=-np.inf)))


def _cheapest_order(divergences: np.ndarray, delta: float) -> int:
    """The order at which the worst device's epsilon is smallest."""
    if not divergences.size:
        return 0
    return int(np.argmin(divergences.max(axis=0) + _beyond_divergence(delta)))
