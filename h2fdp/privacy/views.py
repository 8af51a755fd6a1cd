"""Views of a subnet's uploads at one aggregation, by observer: how far a record moves them, under which noise.

A view is in the unit of the vector in which the upload was first seen by its observer, or broadcast; weights further up
scale sensitivity and noise alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from h2fdp.privacy.accounting import Bound, Sampling
from h2fdp.privacy.places import Cohort, Holder, Observer, Place


@dataclass(frozen=True, kw_only=True)
class Uploads(Cohort):
    """The uploads of a subnet's devices at one aggregation, or at its end to a controller, as it is planned: of devices
    that arrive, at levels as accounts state them. Of devices that lie these are 0: no account credits what they add.

    Attributes:
        weights: (s,) rho_j of the devices in what the edge server sends on, summing to 1 for an average; where that is
            no sum, how far it moves where one device's part moves by 1.
        sampling_rates, records: (s,) q_j and D_j.
        honest: (s,) whether each sends what it is to send; None where all do. Who does not has no rows of the ledger.
        epochs: (s,) the steps of an epoch, of which no two draw the same record; None where any two may.
    """

    edge: str
    place: Place
    steps: np.ndarray
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray
    sampling: Sampling
    honest: np.ndarray | None = None
    epochs: np.ndarray | None = None

    @cached_property
    def parts(self) -> np.ndarray:
        """(n,) standard deviations of the independent parts of the noise on the subnet's average."""
        return self.place.parts(self.levels, self.weights)


@dataclass(frozen=True)
class Sensitivities:
    """The distance by which one record of each device - or one device: `bound` says which - moves what the device
    sends, in L2 or in the norm of the noise's law.

    Attributes:
        moved: (s,) in the unit of the model.
        rates, steps: (s,) q_j, and the local steps behind it, as an account counts them.
        bound: the kind of bound, see `ReleaseType`.
        own_gradient: (s,) how far a draw's own gradient moves its step, in units of 2 eta G; None for 1.
        least: (s,) of a single step: no move is less; None where that is not asked for.
        of_peers: (s,) how far it moves what a peer sees, who knows another device's noise; None where that is `moved`.
        law: of the noise that is to hide it.
    """

    moved: np.ndarray
    rates: np.ndarray
    steps: np.ndarray
    sampling: Sampling
    bound: Bound
    own_gradient: np.ndarray | None = None
    least: np.ndarray | None = None
    of_peers: np.ndarray | None = None
    law: str = "gaussian"

    def grown(self, by: float, weights: np.ndarray) -> Sensitivities:
        """The sensitivities where an average of these weights moves by so much more, as devices round their uploads."""
        assert self.least is not None, "rounded updates are sums of steps"
        # Every move is at least that of one step, so it grows by this share at most.
        return replace(self, moved=self.moved * (1 + by / (weights * self.least)))


class Past(Protocol):
    """The releases that noises above the records of a subnet's devices have covered so far; public, and a value.

    Where a node's noises hang together, what a release reveals depends on those before it.

    Attributes:
        counts: (s_c,) releases of the stream that covers each device: its own, or its edge server's.
    """

    counts: np.ndarray

    @property
    def likeness(self) -> tuple[bytes, ...]:
        """Equal for subnets with equal pasts."""

    def counted(self, rows: np.ndarray, by_node: bool) -> Self:
        """The past after a release of these devices, or of a node above all of them; but for what it moved."""

    def joined(
        self, noise: Any, uploads: Uploads, sensitivities: Sensitivities, unaccounted: Sequence[int]
    ) -> tuple[Self, Uploads, Sensitivities]:
        """The past after these uploads, and what they reveal given it, as uploads of independent noise.

        Args:
            noise: the `NoiseLaw`.
            sensitivities: of a record, in a release alone.
            unaccounted: rows of devices that have no account.
        """

    def afresh(self) -> Self:
        """The past of a run that goes on under draws of other keys: no earlier release reveals noise to come."""

    def state(self) -> dict[str, Any]:
        """The past in tensors, for a checkpoint."""

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """Go on from a `state`."""


@dataclass(frozen=True)
class View:
    """A vector as an observer sees it.

    Attributes:
        moved: (s,) how far one record of each device moves it.
        cover: (s,) standard deviation of the noise on it that the observer cannot subtract.
    """

    moved: np.ndarray
    cover: np.ndarray


@dataclass(frozen=True)
class Merged:
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


@dataclass(frozen=True)
class Vector:
    """The vector that a node sends up of one aggregation.

    Attributes:
        variance: of each coordinate of its noise, without what colluding devices reveal.
        exposure: the largest share, times rate, of a device whose update is raw in it; 0 where none is.
        parts: subnet -> share of its average in the vector, and the largest variance that one node of another branch
            knows; of the subnets of which anything is new in it.
    """

    variance: float
    exposure: float
    parts: Mapping[str, tuple[float, float]]

    def views(self) -> Iterator[tuple[str, Merged]]:
        """The vector as seen by who sees the devices of each subnet in it."""
        for subnet, (share, known) in self.parts.items():
            yield subnet, Merged(share, math.sqrt(self.variance), math.sqrt(known))


def merged(children: Sequence[tuple[float, Vector]], level: float, exposure: float, summed: bool = True) -> Vector:
    """The average of vectors, with noise of the node's own.

    Args:
        children: weight, or sensitivities, and vector of each child of which anything new is in it.
        level: of the noise that the node adds.
        exposure: see `Vector`.
        summed: it is a sum of what the children send, so that the noise of each of them hides the others.
    """
    variances = [share**2 * vector.variance for share, vector in children if summed]
    parts: dict[str, tuple[float, float]] = {}
    for at, (share, vector) in enumerate(children):
        others = [*variances[:at], *variances[at + 1 :]]
        for subnet, (inner, known) in vector.parts.items():
            parts[subnet] = share * inner, max([share**2 * known, *others]) if summed else 0.0
    return Vector(level**2 + sum(variances), exposure, parts)


def views(
    uploads: Uploads, sensitivities: Sensitivities, above: Sequence[Merged], levels: Mapping[Observer, int], peers: bool
) -> Iterator[tuple[Observer, View]]:
    """The view that each observer has of the uploads.

    Under an untrusted edge server each device's noise covers the average too; a peer knows its own part of it. Under a
    trusted one, everybody beyond the trusted chain sees an average under the noise of its last aggregator, or of the
    one that broadcasts. What goes up later holds every release of the interval, so each of them gets its row.

    Args:
        above: the vectors above the subnet's average, from the lowest up to that of the aggregator that broadcasts.
        levels: see `vectors_of_observers`.
        peers: other devices receive the same broadcasts.
    """
    averaged = sensitivities.moved * uploads.weights
    single = View(sensitivities.moved, uploads.levels)
    views_of: dict[int, View] = {}
    for observer, level in levels.items():
        if observer == "peer" and not peers:
            continue
        if level == 0 or uploads.place.holder is Holder.STEP:  # whatever else is seen is made of noisy steps
            yield observer, single
            continue
        moved = averaged if level == 1 else averaged * above[level - 2].share
        if observer == "peer":
            moved = moved if sensitivities.of_peers is None else sensitivities.of_peers
            yield observer, View(moved, _beyond_a_peer(uploads, None if level == 1 else above[level - 2]))
            continue
        if level not in views_of:
            cover = _beyond_colluders(uploads) if level == 1 else above[level - 2].noise_std
            views_of[level] = View(moved, np.full(uploads.rows.size, cover))
        yield observer, views_of[level]


def variance_of(parts: np.ndarray) -> float:
    """The variance of the sum of independent noises with these standard deviations (n,)."""
    return float((parts**2).sum())


def hidden_variance(place: Place, parts: np.ndarray) -> float:
    """Variance of the noise on the subnet's average that no colluding device reveals; what no account credits is 0."""
    if place.tolerance.colluding == 0:
        return variance_of(parts)
    squares = np.sort(parts[parts > 0] ** 2)
    return float(squares[: max(len(squares) - place.tolerance.colluding, 1)].sum())


def _beyond_colluders(uploads: Uploads) -> np.ndarray | float:
    """The variance of the noise on the average, for each device what all but peers cannot subtract; c devices reveal
    theirs to them."""
    colluding = uploads.place.tolerance.colluding
    return _noise_of_others(uploads.parts, colluding) if colluding else math.sqrt(variance_of(uploads.parts))


def _beyond_a_peer(uploads: Uploads, vector: Merged | None) -> np.ndarray:
    """(s,) for each device, the noise on a vector that its worst peer cannot subtract: another active device of its
    subnet, or a node of another branch that receives the same broadcast. Colluding devices reveal theirs to it."""
    place = uploads.place
    if vector is None and not place.by_node:
        return _noise_of_others(uploads.parts, 1 + place.tolerance.colluding)
    if vector is None:
        vector = Merged(1.0, math.sqrt(variance_of(uploads.parts)), 0.0)
    known = np.full(uploads.rows.size, vector.known)
    if not place.by_node:
        parts = vector.share * uploads.weights * uploads.levels
        known = np.maximum(_largest_of_others(parts, place.tolerance.colluding), vector.known)
    return np.asarray(np.sqrt(np.maximum(vector.noise_std**2 - known**2, 0.0)))


def _largest_of_others(parts: np.ndarray, beyond: int) -> np.ndarray:
    """(s,) for each device, the largest part of another one beyond so many larger ones; 0 where there is none."""
    order = np.argsort(-parts, kind="stable")
    largest = np.full(parts.size, parts[order[beyond]] if beyond < parts.size else 0.0)
    after = parts[order[beyond + 1]] if beyond + 1 < parts.size else 0.0
    largest[order[: beyond + 1]] = after  # one of those before it is the device itself
    return largest


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
