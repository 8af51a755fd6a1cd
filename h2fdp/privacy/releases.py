"""What each observer receives in one interval: the rows of the ledger (spec of privacy, table of observers).

Rows are computed from the plan of an interval before it starts, so they can be on disk before anything leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal, get_args

import numpy as np

from h2fdp.privacy.words import NoiseSource, ReleaseKind

Observer = Literal["edge", "peer", "cloud", "public"]
OBSERVERS: tuple[Observer, ...] = get_args(Observer)
Sampling = Literal["poisson", "fixed"]


@dataclass(frozen=True, slots=True)
class Release:
    """A group of equal releases: one noisy vector for each of `devices`, as one observer sees it.

    Attributes:
        devices: the devices whose records it covers, as numbers within the subnet from 1, in ranges: "1-3,5".
        sensitivity: how far one record of such a device moves what the observer sees (L2).
        noise_std: standard deviation of the noise that the observer cannot subtract.
        steps: m, the local steps accumulated since the last released model.
        sampling_rate: q of these devices.
        sampling: how their batches are drawn; only Poisson batches amplify.
    """

    interval: int
    slot: int
    kind: ReleaseKind
    edge: str
    devices: str
    observer: Observer
    sensitivity: float
    noise_std: float
    steps: int
    sampling_rate: float
    sampling: Sampling

    def as_row(self) -> dict[str, Any]:
        """The ledger's row."""
        return dict(zip(RELEASE_KEYS, _values_of(self), strict=True))


RELEASE_KEYS = tuple(field.name for field in fields(Release))
_values_of = attrgetter(*RELEASE_KEYS)


@dataclass(frozen=True)
class SubnetReleases:
    """One upload of a subnet: who takes part, with which weight, rate and noise.

    Attributes:
        steps: (s,) m_j of each device, or one number for all.
        rows: (s,) the devices that are really in it, as row numbers within the subnet from 0.
        sensitivity: of a device's own part, before its weight: (s,) or one number for all.
        weights: (s,) of the devices in what the edge server sends on: rho_j, summing to 1, for an average.
        sampling_rates: (s,) q_j.
        noise_std: (s,) under noise from devices, (1,) under noise from the edge server.
        size: s_c, devices of the subnet, active or not.
        edge_is_cloud: the edge server is the cloud's own (a star), so that the cloud sees single uploads.
    """

    interval: int
    slot: int
    kind: ReleaseKind
    edge: str
    source: NoiseSource
    steps: int | np.ndarray
    sensitivity: float | np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    sampling_rates: np.ndarray
    noise_std: np.ndarray
    size: int
    sampling: Sampling
    edge_is_cloud: bool = False


def releases_of(upload: SubnetReleases) -> Iterator[Release]:
    """The ledger rows of one upload, for all observers.

    Under an untrusted edge server each device's noise covers the average too; a peer knows its own part of it.
    Under a trusted one, everybody beyond the edge server sees the average under the edge's noise. What the cloud
    receives holds every local release of the interval and the global one, so each of them gets its row.
    """
    if upload.source == "none" or upload.rows.size == 0:
        return
    assert upload.source != "cloud", "the cloud's noise is on no subnet's upload"
    everyone = np.ones(upload.rows.size)
    own, rates, steps = upload.sensitivity * everyone, upload.sampling_rates, upload.steps * everyone
    if upload.source == "device":
        single = np.stack([own, upload.noise_std, rates, steps], axis=1)
        yield from grouped(upload, "edge", single)
        parts = upload.weights * upload.noise_std
        whole, beyond_a_peer = math.sqrt(float(np.sum(parts**2))) * everyone, _noise_beyond_a_peer(parts)
    else:
        whole = beyond_a_peer = float(upload.noise_std[0]) * everyone
    average = np.stack([own * upload.weights, whole, rates, steps], axis=1)
    if upload.size > 1:
        yield from grouped(upload, "peer", np.stack([average[:, 0], beyond_a_peer, rates, steps], axis=1))
    yield from grouped(upload, "cloud", single if upload.source == "device" and upload.edge_is_cloud else average)
    yield from grouped(upload, "public", average)


def _noise_beyond_a_peer(parts: np.ndarray) -> np.ndarray:
    """For each device, the noise on the average that its worst active peer cannot subtract; parts = rho_j sigma_j."""
    squares = parts**2
    if squares.size == 1:
        return np.asarray(np.abs(parts))  # the peers are inactive: none of the noise is theirs
    largest, runner_up = np.sort(squares)[::-1][:2]
    position = int(np.argmax(squares))
    worst = np.where(np.arange(squares.size) == position, runner_up, largest)
    return np.asarray(np.sqrt(np.maximum(squares.sum() - worst, 0.0)))


def grouped(upload: SubnetReleases, observer: Observer, columns: np.ndarray) -> Iterator[Release]:
    """One row for each distinct (sensitivity, noise, rate, steps); columns is (s, 4)."""
    if (columns == columns[0]).all():  # equal devices, the usual case
        groups = [(columns[0].tolist(), upload.rows)]
    else:
        distinct, number = np.unique(columns, axis=0, return_inverse=True)
        groups = [(row, upload.rows[number.ravel() == each]) for each, row in enumerate(distinct.tolist())]
    for (sensitivity, noise_std, rate, steps), rows in groups:
        yield Release(
            upload.interval,
            upload.slot,
            upload.kind,
            upload.edge,
            device_ranges(rows),
            observer,
            sensitivity,
            noise_std,
            int(steps),
            rate,
            upload.sampling,
        )


def rows_in(ranges: str) -> Iterator[slice]:
    """The rows from 0 that `device_ranges` wrote, as slices.

    >>> list(rows_in("1-3,5"))
    [slice(0, 3, None), slice(4, 5, None)]
    """
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield slice(int(first) - 1, int(last or first))


def device_ranges(rows: np.ndarray | Sequence[int]) -> str:
    """Row numbers from 0 as ranges of device numbers from 1.

    >>> device_ranges([0, 1, 2, 4])
    '1-3,5'
    """
    numbers = np.sort(np.asarray(rows)) + 1
    if numbers.size > 1 and numbers[-1] - numbers[0] == numbers.size - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return ",".join(str(run[0]) if run.size == 1 else f"{run[0]}-{run[-1]}" for run in runs)
