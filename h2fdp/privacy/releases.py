"""What each observer receives in one interval: the rows of the ledger (spec of privacy, table of observers).

Rows are computed from the plan of an interval before it starts, so they can be on disk before anything leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from h2fdp.privacy.accounting import Bound
from h2fdp.privacy.trust_model import Observer, ReleaseKind, TrustModel

Sampling = Literal["poisson", "fixed"]
Adjacency = Literal["null-record", "add-remove", "replace"]


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
        bound: how the sensitivity is known, see `ReleaseType`.
        own_gradient: how far a draw's own gradient moves its step under the bound `record`, in units of 2 eta G.
        clip_norm, vote_share: where the clip norm moves, C of the interval, and the share of the squared sensitivity
            that is the vote about it (see `AdaptiveClipping`); None elsewhere.
        adjacency: what the sensitivity is about; of rows for which it is `replace` the ledger says so.
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
    bound: Bound = "batch"
    own_gradient: float = 1.0
    clip_norm: float | None = None
    vote_share: float | None = None
    adjacency: Adjacency = "null-record"

    def as_row(self) -> dict[str, Any]:
        """The ledger's row."""
        row = dict(zip(RELEASE_KEYS, _values_of(self), strict=True))
        if self.clip_norm is not None:
            row |= {key: getattr(self, key) for key in VOTE_KEYS}
        return row if self.adjacency == "null-record" else row | {"adjacency": self.adjacency}


VOTE_KEYS = ("clip_norm", "vote_share")
RELEASE_KEYS = tuple(each.name for each in fields(Release) if each.name not in (*VOTE_KEYS, "adjacency"))
_values_of = attrgetter(*RELEASE_KEYS)


class AlikeReleases(NamedTuple):
    """The releases of a subnet, and the edge servers of all subnets that have the same ones, but for the name."""

    edges: Sequence[str]
    releases: Sequence[Release]


@dataclass(frozen=True)
class TierVector:
    """A vector above a subnet's average that holds the subnet's uploads: what an aggregator further up makes of them.

    Attributes:
        share: of the subnet's average in it.
        noise_std: of all noise of this aggregation on it, each vector of which enters nothing else: of every device and
            aggregator below, and of the aggregator itself.
        known: standard deviation of the largest part of that noise that one node of another branch knows: an edge
            server, or a device, may subtract what it sent itself.
    """

    share: float
    noise_std: float
    known: float


@dataclass(frozen=True, kw_only=True)
class PlannedUpload:
    """What a subnet's devices upload at one aggregation, or at its end to a controller, as it is planned.

    Observers see it at a level: 0 single uploads, 1 the subnet's average, 2 and more the vectors of `tiers`.

    Attributes:
        interval: from 1.
        first_slot: the slot of the broadcast before it; its steps are at the slots after that.
        slot: of the aggregation.
        trust_model: who adds noise in this subnet, and what its edge server sees.
        step_size: eta_k.
        rows: (s,) rows of the devices whose uploads arrive.
        steps: (s,) their local steps.
        weights: (s,) rho_j of the devices in what the edge server sends on, summing to 1 for an average; where that is
            no sum, how far it moves where one device's part moves by 1.
        sampling_rates, records: (s,) q_j and D_j.
        noise_std: (s,) levels of the devices' noise, (1,) of the edge server's, (0,) where neither adds any.
        share: of the subnet in the global average: varrho_c.
        cloud_noise_std: of the cloud's own noise on that average; 0 for none.
        size: devices that see the same broadcasts: those of the subnet, or of everything below its highest aggregator.
        views: observer -> level.
        tiers: the vectors above the subnet's average, from the lowest up to that of the aggregator that broadcasts.
        numbers: how many estimates each of them, or the edge server for all, releases at its end.
        bound: how the sensitivity of what they upload is known.
        own_gradient: (s,) how far a draw's own gradient moves its step, in units of 2 eta G; None for 1.
        rounding: how much further the subnet's average may move because devices round what they send.
    """

    interval: int
    first_slot: int = 0
    slot: int
    kind: ReleaseKind
    edge: str
    trust_model: TrustModel
    step_size: float = 0.0
    rows: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray
    noise_std: np.ndarray
    share: float = 1.0
    cloud_noise_std: float = 0.0
    size: int
    sampling: Sampling
    views: Mapping[Observer, int]
    tiers: tuple[TierVector, ...] = ()
    numbers: int = 0
    bound: Bound = "batch"
    own_gradient: np.ndarray | None = None
    rounding: float = 0.0


def releases_of(upload: PlannedUpload, sensitivity: float | np.ndarray) -> Iterator[Release]:
    """The ledger's rows of one upload, for all observers.

    Under an untrusted edge server each device's noise covers the average too; a peer knows its own part of it. Under a
    trusted one, everybody beyond the trusted chain sees an average under the noise of its last aggregator, or of the
    one that broadcasts. What goes up later holds every release of the interval, so each of them gets its row.

    A row is in the unit of the vector in which the upload was first seen by this observer, or broadcast; weights
    further up scale sensitivity and noise alike.

    Args:
        sensitivity: of a device's own part, before its weight: (s,) or one number for all.
    """
    if not upload.trust_model.noisy or upload.rows.size == 0:
        return
    assert not upload.trust_model.cloud_adds_noise, "the cloud's noise is on no subnet's upload"
    single = _single(upload, sensitivity) if upload.trust_model.devices_add_noise else np.empty((0, 4))
    levels = [single, *_averages(upload, sensitivity)]
    known: dict[int, list[_Group]] = {}
    for observer, level in upload.views.items():
        if observer == "peer" and upload.size == 1:
            continue
        if observer == "peer" and level > 0:
            beyond = levels[level].copy()
            beyond[:, 1] = _noise_beyond_a_peer(upload, level)
            yield from grouped(upload, observer, beyond)
        else:
            if level not in known:
                known[level] = _groups(upload, levels[level])
            yield from _seen_by(upload, observer, known[level])


def _single(upload: PlannedUpload, sensitivity: float | np.ndarray) -> np.ndarray:
    """(s, 4) sensitivity, noise, rate, steps of each device's own upload."""
    everyone = np.ones(upload.rows.size)
    return np.stack([sensitivity * everyone, upload.noise_std, upload.sampling_rates, upload.steps * everyone], axis=1)


def _averages(upload: PlannedUpload, sensitivity: float | np.ndarray) -> Iterator[np.ndarray]:
    """The same (s, 4) of each device's part in the subnet's average, and in every vector above."""
    everyone = np.ones(upload.rows.size)
    moved, rest = sensitivity * everyone * upload.weights, (upload.sampling_rates, upload.steps * everyone)
    yield np.stack([moved, _noise_to_observers(upload) * everyone, *rest], axis=1)
    for vector in upload.tiers:
        yield np.stack([moved * vector.share, vector.noise_std * everyone, *rest], axis=1)


def _noise_on_average(upload: PlannedUpload) -> float:
    parts = upload.trust_model.noise_parts(upload.noise_std, upload.weights)
    return math.sqrt(float(np.sum(parts**2)))


def _noise_to_observers(upload: PlannedUpload) -> np.ndarray | float:
    """Of the noise on the average, for each device what all but peers cannot subtract; c devices tell them theirs."""
    if upload.trust_model.colluding == 0:
        return _noise_on_average(upload)
    parts = upload.trust_model.noise_parts(upload.noise_std, upload.weights)
    return _noise_of_others(parts, upload.trust_model.colluding)


def _noise_beyond_a_peer(upload: PlannedUpload, level: int) -> np.ndarray:
    """(s,) for each device, the noise on a vector that its worst peer cannot subtract: another active device of its
    subnet, or a node of another branch that receives the same broadcast. Colluding devices tell it theirs."""
    vector = upload.tiers[level - 2] if level > 1 else TierVector(1.0, _noise_on_average(upload), 0.0)
    if not upload.trust_model.devices_add_noise:
        known = np.full(upload.rows.size, vector.known)
    elif level == 1:
        parts = upload.trust_model.noise_parts(upload.noise_std, upload.weights)
        return _noise_of_others(parts, 1 + upload.trust_model.colluding)
    else:
        parts = vector.share * upload.weights * upload.noise_std
        known = np.maximum(_largest_of_others(parts, upload.trust_model.colluding), vector.known)
    return np.asarray(np.sqrt(np.maximum(vector.noise_std**2 - known**2, 0.0)))


def _largest_of_others(parts: np.ndarray, beyond: int) -> np.ndarray:
    """(s,) for each device, the largest part of another one beyond so many larger ones; 0 where there is none."""
    order = np.argsort(-parts, kind="stable")
    found = np.full(parts.size, parts[order[beyond]] if beyond < parts.size else 0.0)
    after = parts[order[beyond + 1]] if beyond + 1 < parts.size else 0.0
    found[order[: beyond + 1]] = after  # one of those before it is the device itself
    return found


def _noise_of_others(parts: np.ndarray, known: int) -> np.ndarray:
    """(s,) for each device, the noise on the average beyond the largest parts of so many other active devices.

    Its own part always remains. Peers that are inactive have none.

    Args:
        parts: (s,) rho_j sigma_j.
    """
    squares = parts**2
    if squares.size <= known:
        return np.asarray(np.abs(parts))
    order = np.argsort(-squares, kind="stable")
    falling, total = squares[order], squares.sum()
    left = np.full(squares.size, total - falling[:known].sum())
    for place, device in enumerate(order[:known].tolist()):
        left[device] = total - np.delete(falling[: known + 1], place).sum()
    return np.asarray(np.sqrt(np.maximum(left, 0.0)))


def grouped(upload: PlannedUpload, observer: Observer, columns: np.ndarray) -> Iterator[Release]:
    """One row for each distinct (sensitivity, noise, rate, steps, own gradient); columns is (s, 4)."""
    return _seen_by(upload, observer, _groups(upload, columns))


_Group = tuple[tuple[float, ...], str]  # sensitivity, noise, rate, steps, own gradient; the devices that they are of


def _groups(upload: PlannedUpload, columns: np.ndarray) -> list[_Group]:
    own = np.ones(len(columns)) if upload.own_gradient is None else upload.own_gradient
    found: dict[tuple[float, ...], list[int]] = {}
    for row, *values in zip(upload.rows.tolist(), *columns.T.tolist(), own.tolist(), strict=True):
        found.setdefault(tuple(values), []).append(row)
    return [(values, device_ranges(found[values])) for values in sorted(found)]


def _seen_by(upload: PlannedUpload, observer: Observer, groups: list[_Group]) -> Iterator[Release]:
    for (sensitivity, noise_std, rate, steps, own_gradient), devices in groups:
        yield Release(
            upload.interval,
            upload.slot,
            upload.kind,
            upload.edge,
            devices,
            observer,
            sensitivity,
            noise_std,
            int(steps),
            rate,
            upload.sampling,
            upload.bound,
            own_gradient,
        )


def rows_in(ranges: str) -> Iterator[slice]:
    """The rows from 0 that `device_ranges` wrote, as slices.

    >>> list(rows_in("1-3,5"))
    [slice(0, 3, None), slice(4, 5, None)]
    """
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield slice(int(first) - 1, int(last or first))


def device_ranges(rows: Iterable[int]) -> str:
    """Row numbers from 0 as ranges of device numbers from 1.

    >>> device_ranges([0, 1, 2, 4])
    '1-3,5'
    """
    runs: list[list[int]] = []
    for number in sorted(row + 1 for row in rows):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
