"""What each observer holds about each device: how often it received which type of release.

An account is a vector of counts, so it is brought up to date by a release at a cost that does not grow with what was
released before, and equal devices are accounted once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from h2fdp.privacy.accounting import ReleaseType, epsilon_from_rdp, rdp_of
from h2fdp.privacy.releases import OBSERVERS, Observer, Release, rows_in

_DIGITS = 6  # of a noise multiplier, rounded down: an account is never below the exact one, and hardly above it


def release_type(release: Release) -> ReleaseType:
    """A release in units of its sensitivity; its noise multiplier is rounded down to six digits.

    >>> from h2fdp.privacy.releases import Release
    >>> row = Release(1, 5, "local", "a", "1-3", "cloud", 0.2, 1.0 / 3, 5, 0.02, "poisson")
    >>> release_type(row).noise_multiplier
    1.66666
    """
    ratio = release.noise_std / release.sensitivity
    return ReleaseType(_rounded_down(ratio), release.steps, release.sampling_rate, release.sampling)


def _rounded_down(value: float) -> float:
    if value <= 0 or not math.isfinite(value):
        return max(value, 0.0)
    place = _DIGITS - 1 - math.floor(math.log10(value))
    # Equal ratios differ in their last bits from interval to interval; the nudge keeps them one type.
    return math.floor(value * 10.0**place * (1 + 1e-12)) / 10.0**place


@dataclass(frozen=True)
class DeviceClass:
    """Devices about which an observer holds equal accounts.

    Attributes:
        devices: (n,) numbers of the devices over the whole network, ascending.
        composition: how often each type of release was received.
    """

    devices: np.ndarray
    composition: dict[ReleaseType, int]


class Accounts:
    """The accounts of all observers about all devices of a network.

    Args:
        sizes: edge server -> number of its devices, in the order of the tree.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        stops = np.cumsum(list(sizes.values()), dtype=np.int64).tolist()
        self._first = {edge: stop - size for (edge, size), stop in zip(sizes.items(), stops, strict=True)}
        self.sizes = dict(sizes)
        self.devices = stops[-1] if stops else 0
        self._types: dict[Observer, dict[ReleaseType, int]] = {observer: {} for observer in OBSERVERS}
        self._counts: dict[Observer, np.ndarray] = {
            observer: np.zeros((0, self.devices), dtype=np.int64) for observer in OBSERVERS
        }

    @classmethod
    def of_ledger(cls, releases: Iterable[Release]) -> Accounts:
        """The accounts that a ledger alone gives; subnets are as large as the largest device number in it."""
        rows = list(releases)
        sizes: dict[str, int] = {}
        for row in rows:
            last = max(part.stop for part in rows_in(row.devices))
            sizes[row.edge] = max(sizes.get(row.edge, 0), last)
        accounts = cls(sizes)
        accounts.add(rows)
        return accounts

    def add(self, releases: Iterable[Release], times: int = 1) -> None:
        """Enter releases; `times` -1 takes back what was entered but not released."""
        for release in releases:
            counts = self._counts_of(release.observer, release_type(release))
            first = self._first[release.edge]
            for part in rows_in(release.devices):
                counts[first + part.start : first + part.stop] += times

    def _counts_of(self, observer: Observer, kind: ReleaseType) -> np.ndarray:
        types = self._types[observer]
        if kind not in types:
            types[kind] = len(types)
            empty = np.zeros((1, self.devices), dtype=np.int64)
            self._counts[observer] = np.concatenate([self._counts[observer], empty])
        row: np.ndarray = self._counts[observer][types[kind]]
        return row

    def classes(self, observer: Observer) -> Iterator[DeviceClass]:
        """The devices that this observer has received anything of, equal accounts together."""
        counts = self._counts[observer].T
        if not counts.size:
            return
        distinct, group = np.unique(counts, axis=0, return_inverse=True)
        for number, row in enumerate(distinct.tolist()):
            composition = {kind: count for kind, count in zip(self._types[observer], row, strict=True) if count}
            if composition:
                yield DeviceClass(np.flatnonzero(group.ravel() == number), composition)

    def rdp(self, observer: Observer) -> np.ndarray:
        """(classes, orders) Renyi divergence that this observer holds of each distinct device; classes may be 0."""
        kinds, counts = self._types[observer], self._counts[observer].T
        if not kinds:
            return np.empty((0, 0))
        single = np.stack([rdp_of(kind) for kind in kinds])
        distinct = np.unique(counts, axis=0)
        with np.errstate(invalid="ignore"):  # 0 releases of infinite divergence are none
            return np.where(distinct[:, :, None] > 0, distinct[:, :, None] * single, 0.0).sum(axis=1)

    def worst(self, observer: Observer, delta: float) -> float | None:
        """Accounted epsilon of the worst device, by `rdp`; None where the observer received no private release."""
        divergences = self.rdp(observer)
        return float(np.max(epsilon_from_rdp(divergences, delta))) if divergences.size else None

    def place_of(self, device: int) -> tuple[str, int]:
        """Edge server and row within the subnet of a device of the network."""
        names = list(self._first)
        number = bisect_right(list(self._first.values()), device) - 1
        return names[number], device - self._first[names[number]]
