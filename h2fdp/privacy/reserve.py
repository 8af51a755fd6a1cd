"""A reserve of planned releases: whatever a run decides, it releases no more than was planned.

Noise that is calibrated before a run, by any accountant, is made for certain releases: of each device to each observer
a multiset of types. A run may draw on it in any order, and its choice may depend on all that was released before. Its
privacy loss is still dominated by that of the whole multiset: if a release is dominated by one type of the reserve, and
for each of its outcomes the rest of the run by the types that are left, then both together are dominated by the product
(adaptive composition of dominating pairs: Zhu, Dong and Wang 2022; by induction over the releases). A release
with more noise is dominated by one with less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from h2fdp.privacy.accounting import ReleaseType
from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.observing import Observer
from h2fdp.privacy.releases import Release

_Counts = Mapping[ReleaseType, np.ndarray]


@dataclass(frozen=True)
class Reserve:
    """What was planned, and for which observers it is kept.

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


def _within(held: _Counts, reserve: _Counts) -> bool:
    """Whether every release held can be given one of the reserve, of as little noise or less, each only once.

    Types that differ in nothing but their noise are ordered by it, so that it is enough to count: at no level may more
    have been released with at most so much noise than is in reserve (Hall's condition).
    """
    families: dict[ReleaseType, list[tuple[float, np.ndarray]]] = {}
    for sign, counts in ((-1, held), (1, reserve)):
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
