"""Noise chosen interval by interval for what a privacy filter has left: spending step by step.

A filter at a fixed Renyi order allows the noise of an interval to depend on everything that was released before it
(Feldman and Zrnic 2021). How the rest is divided among the intervals to come is
therefore free; only that no device's divergence exceeds the room is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from h2fdp.privacy.accounting import ReleaseType
from h2fdp.privacy.accounting.renyi import rdp_at
from h2fdp.privacy.accounts import COARSE, MARGIN, Accounts, release_type
from h2fdp.privacy.budget_filter import BudgetFilter
from h2fdp.privacy.observing import Observer
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

        return math.exp(_first_true(lasts, _LEAST, _MOST) * _GRID)

    def _spent(self, releases: Sequence[Release], intervals: Mapping[str, float]) -> dict[_Held, float]:
        """What each group of devices is about to receive, and the most that any device of it has spent."""
        received: dict[tuple[Observer, str], dict[ReleaseType, np.ndarray]] = {}
        for release in releases:
            if release.observer in self.watched.budgets:
                counts = received.setdefault((release.observer, release.edge), {})
                row = counts.setdefault(release_type(release), np.zeros(self.accounts.sizes[release.edge], np.int64))
                for part in rows_in(release.devices):
                    row[part] += 1
        found: dict[_Held, float] = {}
        for (observer, edge), counts in received.items():
            spent = self.accounts.spent_at(observer, edge, self.watched.orders[observer])
            patterns, number = np.unique(np.stack(list(counts.values()), axis=1), axis=0, return_inverse=True)
            for place, pattern in enumerate(patterns.tolist()):
                kinds = tuple((kind, count) for kind, count in zip(counts, pattern, strict=True) if count)
                if kinds:
                    held = _Held(observer, kinds, intervals[edge])
                    most = float(spent[number.ravel() == place].max())
                    found[held] = max(most, found.get(held, 0.0))
        return found

    def _divergence(self, held: _Held, scale: float) -> float:
        """Of one such interval under noise `scale` times as large, at the observer's order."""
        order = self.watched.orders[held.observer]
        return sum(
            count * rdp_at(replace(kind, noise_multiplier=kind.noise_multiplier * scale), order)
            for kind, count in held.received
        )


def _first_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest whole number within low .. high from which on `holds` is true, or high; sought from 0 outwards."""
    step, true, false = 1, high, low - 1
    if holds(0):
        true = 0
        while true - step >= low and holds(true - step):
            true, step = true - step, 2 * step
        false = max(true - step, low - 1)
    else:
        false = 0
        while false + step < high and not holds(false + step):
            false, step = false + step, 2 * step
        true = min(false + step, high)
    while true - false > 1:
        middle = (true + false) // 2
        true, false = (middle, false) if holds(middle) else (true, middle)
    return true
