"""The end of a run before more is released than it may: budgets of observers, and a reserve of planned releases.

A privacy filter (Feldman and Zrnic 2021) stops training before an observer's budget would be exceeded. How much is
released next may depend on what was released before. Composition stays valid for the divergence of one order that was
fixed in advance, so each observer's order is chosen before the run and kept. How a budget is divided among the
intervals to come is free: `NoiseAllowance` chooses the noise of each by what is left.

A reserve serves noise that is calibrated before a run, by any accountant. It is made for certain releases: of each
device to each observer a multiset of types. A run may draw on it in any order, and its choice may depend on all that
was released before. Its privacy loss is still dominated by that of the whole multiset: if a release is dominated by one
type of the reserve, and for each of its outcomes the rest of the run by the types that are left, then both together are
dominated by the product (adaptive composition of dominating pairs: Zhu, Dong and Wang 2022; by induction over the
releases). A release with more noise is dominated by one with less.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from h2fdp.privacy.accounting import ORDERS, ReleaseType, epsilon_at_order, rdp_of
from h2fdp.privacy.accounts import COARSE, MARGIN, Accounts, release_type
from h2fdp.privacy.places import Observer
from h2fdp.privacy.releases import Release, rows_in

_GRID = 0.005  # relative: noises of one grid are of few types, whose divergences are known already
_LEAST, _MOST = round(math.log(0.1) / _GRID), round(math.log(1e3) / _GRID)


@dataclass(frozen=True)
class _Held:
    """Devices about which an observer will receive the same in the coming interval."""

    observer: Observer
    received: tuple[tuple[ReleaseType, int], ...]
    intervals: float


@dataclass(frozen=True)
class NoiseAllowance:
    """The noise that each interval needs so that the budgets last for those to come.

    Attributes:
        watched: the filter.
        accounts: those of the run, always up to date.
    """

    watched: BudgetFilter
    accounts: Accounts

    def factor(self, releases: Sequence[Release], intervals: Mapping[str, float]) -> float:
        """The smallest factor on the noise of these releases, between 0.1 and 1000 on a grid of half a per cent, at
        which so many intervals like theirs would exhaust no budget; 1000 where none does.

        Args:
            releases: of the coming interval, under the noise that was planned for it.
            intervals: edge server -> in how many intervals, the coming one included, its devices are expected to take
                part; at least 1.
        """
        spent = self._spent(releases, intervals)
        exact, room = self.accounts.exact, {each: self.watched.room(each) for each in self.watched.budgets}

        def lasts(step: int) -> bool:
            scale = math.exp(step * _GRID) / (MARGIN if exact else MARGIN * COARSE)
            return all(
                held + each.intervals * self._divergence(each, scale) <= room[each.observer]
                for each, held in spent.items()
            )

        return math.exp((_LEAST + bisect_left(range(_LEAST, _MOST), True, key=lasts)) * _GRID)

    def _spent(self, releases: Sequence[Release], intervals: Mapping[str, float]) -> dict[_Held, float]:
        """The releases that each group of devices is about to receive, and the most that any device of it has spent."""
        received: dict[tuple[Observer, str], dict[ReleaseType, np.ndarray]] = {}
        for release in releases:
            if release.observer in self.watched.budgets:
                counts = received.setdefault((release.observer, release.edge), {})
                row = counts.setdefault(release_type(release), np.zeros(self.accounts.sizes[release.edge], np.int64))
                for part in rows_in(release.devices):
                    row[part] += 1
        by_class: dict[_Held, float] = {}
        for (observer, edge), counts in received.items():
            spent = self.accounts.spent_at(observer, edge, self.watched.orders[observer])
            patterns, number = np.unique(np.stack(list(counts.values()), axis=1), axis=0, return_inverse=True)
            for place, pattern in enumerate(patterns.tolist()):
                kinds = tuple((kind, count) for kind, count in zip(counts, pattern, strict=True) if count)
                if kinds:
                    device_class = _Held(observer, kinds, intervals[edge])
                    most = float(spent[number.ravel() == place].max())
                    by_class[device_class] = max(most, by_class.get(device_class, 0.0))
        return by_class

    def _divergence(self, device_class: _Held, scale: float) -> float:
        """The divergence of one such interval under noise `scale` times as large, at the observer's order."""
        order = self.watched.orders[device_class.observer]
        return sum(
            count * float(rdp_of(replace(kind, noise_multiplier=kind.noise_multiplier * scale), (order,))[0])
            for kind, count in device_class.received
        )


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


_Counts = Mapping[ReleaseType, np.ndarray]


@dataclass(frozen=True)
class Reserve:
    """The planned releases, and for which observers it is kept.

    Attributes:
        planned: the accounts that noise was calibrated to.
    """

    planned: Accounts
    observers: Collection[Observer]

    def exceeded(self, accounts: Accounts, releases: Sequence[Release]) -> Observer | None:
        """The first observer that would hold more of some device than is in reserve.

        Args:
            accounts: of the run, these releases included.
            releases: those since it was last asked; only who is in them is looked at.
        """
        for observer, edge in sorted({(each.observer, each.edge) for each in releases}):
            if observer in self.observers and not _within(
                accounts.counts(observer, edge), self.planned.counts(observer, edge)
            ):
                return observer
        return None


def _within(spent: _Counts, reserve: _Counts) -> bool:
    """Whether every release spent can be matched with one of the reserve, of as little noise or less, each once.

    Types that differ in nothing but their noise are ordered by it, so that it is enough to count: at no level may more
    have been released with at most so much noise than is in reserve (Hall's condition).
    """
    families: dict[ReleaseType, list[tuple[float, np.ndarray]]] = {}
    for sign, counts in ((-1, spent), (1, reserve)):
        for kind, row in counts.items():
            family = replace(kind, noise_multiplier=0.0)
            families.setdefault(family, []).append((kind.noise_multiplier, sign * row))
    for levels in families.values():
        left: dict[float, np.ndarray] = {}
        for noise, row in levels:
            left[noise] = left.get(noise, np.zeros_like(row)) + row
        rising = np.cumsum([left[noise] for noise in sorted(left)], axis=0)
        if (rising < 0).any():
            return False
    return True
