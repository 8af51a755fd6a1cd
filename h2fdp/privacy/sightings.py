"""What each observer really receives of each device, for lower bounds; accounts credit observers with more.

The cloud's account holds every piece of a subnet's upload, but what arrives is their sum. The public has the average of
these sums over subnets, under the noise of all. A peer has its subnet's local averages one by one, and the last piece
under what the other subnets add.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from h2fdp.privacy.accounting import Effect, SeenUpload, SeenVector
from h2fdp.privacy.observing import Observer
from h2fdp.privacy.releases import Release, device_ranges, rows_in

_EFFECTS: Mapping[str, Effect] = {"batch": "batch", "record": "record", "draws": "draws"}
_DIGITS = 6  # of a noise multiplier, rounded up: what is attained under it is never more than was
_MOST_EXACT, _COARSE = 64, 1.005  # kinds of uploads about a subnet before they share a coarser grid


class Sighting(NamedTuple):
    """One vector for each of these devices, as one observer has it."""

    observer: Observer
    edge: str
    devices: str
    vector: SeenVector


@dataclass(frozen=True)
class SeenInterval:
    """One interval: its rows of the ledger, and what observers know that these do not say.

    Attributes:
        rows: of all subnets and observers.
        weights: edge server -> weight of its subnet's upload in the global average.
        ends: edge server -> the slots of its aggregations.
        edges_alone: nothing is known of what anybody has above the lowest edge servers.
        single: the cloud receives each upload, or each secure sum, by itself: the edge server is its own (a star).
        everyone: all devices of the network do all that was planned. Otherwise the peer that knows most of a vector's
            noise, and the devices that collude, are not the same ones from vector to vector.
        colluding: some devices tell observers their noise.
        recoverable: whoever has two global models can tell the average between them.
    """

    rows: Sequence[Release]
    weights: Mapping[str, float]
    ends: Mapping[str, Sequence[int]]
    edges_alone: bool = False
    single: bool = False
    everyone: bool = True
    colluding: bool = False
    recoverable: bool = True

    def sightings(self) -> Iterator[Sighting]:
        """All that is known to have been received."""
        if self.colluding and not self.everyone:
            return
        for (observer, edge), rows in self._by_observer.items():
            if observer == "edge" or (observer == "cloud" and self.single):
                yield from self._uploads(observer, edge, rows)
            elif self.edges_alone or any(row.kind == "step" for row in rows):
                continue
            elif rows[0].kind == "central":
                if self.recoverable:
                    yield from self._each(observer, edge, rows)
            elif observer == "cloud":
                yield from _summed(observer, edge, rows, math.sqrt(self._variances[edge]))
            elif observer == "public":
                if self.recoverable and self.weights[edge] and not self._noisy_steps:
                    yield from _summed(observer, edge, rows, math.sqrt(self._total) / abs(self.weights[edge]))
            else:
                yield from self._by_peer(edge, rows)

    @cached_property
    def _by_observer(self) -> dict[tuple[Observer, str], list[Release]]:
        found: dict[tuple[Observer, str], list[Release]] = defaultdict(list)
        for row in self.rows:
            if row.kind != "estimate":
                found[row.observer, row.edge].append(row)
        return found

    @cached_property
    def _averages(self) -> dict[tuple[str, int], float]:
        """(edge server, slot) -> standard deviation of the noise on that average, to those who know none of it."""
        found: dict[tuple[str, int], float] = {}
        for (observer, edge), rows in self._by_observer.items():
            if observer == "public":
                for row in rows:
                    found[edge, row.slot] = max(row.noise_std, found.get((edge, row.slot), 0.0))
        return found

    @cached_property
    def _last(self) -> dict[str, int]:
        """Edge server -> slot of its last average; no broadcast to its subnet follows it."""
        found: dict[str, int] = {}
        for edge, slot in self._averages:
            found[edge] = max(slot, found.get(edge, slot))
        return found

    @cached_property
    def _variances(self) -> dict[str, float]:
        """Edge server -> variance of all noise on what it sends to the cloud."""
        found: dict[str, float] = defaultdict(float)
        for (edge, _), noise_std in self._averages.items():
            found[edge] += noise_std**2
        return found

    @cached_property
    def _total(self) -> float:
        """Variance of the noise on the global average."""
        return math.fsum(self.weights[edge] ** 2 * variance for edge, variance in self._variances.items())

    @cached_property
    def _noisy_steps(self) -> bool:
        """Whether some devices' noise is on their steps: then the ledger does not say what of it reaches averages."""
        return any(row.kind == "step" for row in self.rows)

    def _uploads(self, observer: Observer, edge: str, rows: Sequence[Release]) -> Iterator[Sighting]:
        """Each upload, or each secure sum, by itself; of noisy steps the sums between aggregations."""
        if rows[0].kind != "step":
            yield from self._each(observer, edge, rows)
            return
        by_end: dict[int, list[Release]] = defaultdict(list)
        for row in rows:
            by_end[min(end for end in self.ends[edge] if end >= row.slot)].append(row)
        for each in by_end.values():
            yield from _summed(observer, edge, each, None)

    @staticmethod
    def _each(observer: Observer, edge: str, rows: Iterable[Release]) -> Iterator[Sighting]:
        for row in rows:
            yield from _summed(observer, edge, [row], row.noise_std)

    def _by_peer(self, edge: str, rows: Sequence[Release]) -> Iterator[Sighting]:
        """Local averages, and the last piece of the global one, less what one and the same other device knows.

        Where not all devices are alike in a vector, this peer is taken to know nothing of the noise.
        """
        alike: dict[int, int] = defaultdict(int)
        for row in rows:
            alike[row.slot] += 1
        last = self._last[edge]
        for row in rows:
            hidden = row.noise_std if self.everyone and alike[row.slot] == 1 else self._averages[edge, row.slot]
            if row.slot == last:
                if not self.recoverable or not self.weights[edge] or self._noisy_steps:
                    continue
                own = self.weights[edge] ** 2
                hidden = math.sqrt(hidden**2 + max(self._total - own * self._variances[edge], 0.0) / own)
            yield from _summed("peer", edge, [row], hidden)


def _summed(observer: Observer, edge: str, rows: Sequence[Release], noise_std: float | None) -> Iterator[Sighting]:
    """The sum of what these rows say, for all devices that it holds the same of.

    Args:
        noise_std: on the sum; None where every row has its own noise on it.
    """
    for devices, own in _by_devices(rows):
        noise = math.sqrt(math.fsum(row.noise_std**2 for row in own)) if noise_std is None else noise_std
        vector = tuple(sorted(found for row in own if (found := _seen(row, noise)) is not None))
        if len(vector) == len(own):
            yield Sighting(observer, edge, devices, vector)


def _seen(row: Release, noise_std: float) -> SeenUpload | None:
    """What a row is a part of a vector with this noise; None where no adversary is known."""
    by_kind: Mapping[str, Effect] = {"step": "step", "central": "update"}
    effect = by_kind.get(row.kind) or _EFFECTS.get(row.bound)
    if effect is None:
        return None
    return SeenUpload(_rounded_up(noise_std / row.sensitivity), row.steps, row.sampling_rate, row.sampling, effect)


def _by_devices(rows: Sequence[Release]) -> Iterator[tuple[str, list[Release]]]:
    """Devices with the same rows, as ranges, and these rows."""
    if all(row.devices == rows[0].devices for row in rows):
        yield rows[0].devices, list(rows)
        return
    held: dict[int, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        for part in rows_in(row.devices):
            for device in range(part.start, part.stop):
                held[device].append(place)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for device, places in held.items():
        alike[tuple(places)].append(device)
    for same, devices in alike.items():
        yield device_ranges(devices), [rows[place] for place in same]


def _rounded_up(value: float) -> float:
    """To six digits.

    >>> _rounded_up(1 / 3), _rounded_up(2.0), _rounded_up(0.0)
    (0.333334, 2.0, 0.0)
    """
    if value <= 0:
        return 0.0
    place = _DIGITS - 1 - math.floor(math.log10(value))
    return math.ceil(value * 10.0**place * (1 - 1e-12)) / 10.0**place


def _coarsened(vector: SeenVector) -> SeenVector:
    """The same under noise rounded up on a grid of half a per cent."""
    step = math.log(_COARSE)
    return tuple(
        upload._replace(noise_multiplier=math.exp(math.ceil(math.log(upload.noise_multiplier) / step) * step))
        if upload.noise_multiplier > 0
        else upload
        for upload in vector
    )


class Sightings:
    """How often each observer received which vector about each device.

    Args:
        sizes: edge server -> number of its devices.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self._counts: dict[tuple[Observer, str], dict[SeenVector, np.ndarray]] = defaultdict(dict)

    def add(self, sightings: Iterable[Sighting], times: int = 1) -> None:
        """Enter vectors; `times` -1 takes back what was entered."""
        for observer, edge, devices, vector in sightings:
            counts = self._counts[observer, edge]
            known = vector if vector in counts or len(counts) < _MOST_EXACT else _coarsened(vector)
            if known not in counts:
                counts[known] = np.zeros(self.sizes[edge], dtype=np.int64)
            for part in rows_in(devices):
                counts[known][part] += times

    def about(self, observer: Observer, edge: str, row: int) -> dict[SeenVector, int]:
        """What this observer received of one device of a subnet."""
        held = self._counts.get((observer, edge), {})
        return {vector: int(counts[row]) for vector, counts in held.items() if counts[row]}

    def state(self) -> list[Any]:
        """In plain values."""
        return [
            [observer, edge, [list(upload) for upload in vector], counts.tolist()]
            for (observer, edge), held in self._counts.items()
            for vector, counts in held.items()
        ]

    def load(self, state: Iterable[Any]) -> None:
        """Replace all by what `state` gave."""
        self._counts.clear()
        for observer, edge, uploads, counts in state:
            vector = tuple(SeenUpload(*upload) for upload in uploads)
            self._counts[observer, edge][vector] = np.array(counts, dtype=np.int64)
