"""Correlated Gaussian noise: who adds noise again and again takes back a part of what it added before.

The r-th release of a noise stream (a device's uploads, or the averages of a trusted edge server) carries

    xi_r = L_r sum_{j < r} d_j z_{r-j},    z_r from N(0, I), from a key of its own for each node and r,

where d_j are the first column of D = C^-1, lower triangular and Toeplitz, and L_r is the level that independent noise
would have. Nothing is kept: a release draws the z of earlier ones again.

**Account.** Let a record move the r-th release by at most x_r L_r, with x_r = 0 where it takes no part. Who receives
all releases y can compute C (y / L) = C (g / L) + z, and back again. Its r-th row is a Gaussian mechanism under noise
that is independent of all rows before it. Given these, the record moves the row by at most

    (C x)_r = sum_{s <= r} c_{r-s} x_s,

whatever the directions in which it moves the releases, as all c_j are at least 0 here. So the stream is one Gaussian of
mu = ||C x||, and this is the adaptive composition of its rows. That is how ledgers have it: a row for each release, of
noise L_r and sensitivity (C x)_r L_r, also about those who take no part in it but took part in earlier ones. A record
that is in fewer releases has less. Who sees a function of the releases, and of noises that do not hang on them, learns
no more. A run that goes on under fresh draws takes back noise that it never released, which hides more, not less.

Sources: banded inverse square root: Kalinin, McKenna, Upadhyay, Lampert 2025; banded square root: Kalinin and Lampert
2024, of the shape of BandMF (Choquette-Choo et al. 2023); adaptivity, and non-negative factors: Denisov et al. 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect
from h2fdp.privacy.vectors import Gaussian, check_holdable, standard_normal
from h2fdp.privacy.views import Reach, Uploads
from h2fdp.streams import Streams, generator_of

if TYPE_CHECKING:
    from torch import Tensor

Kind = Annotated[Literal["banded-inverse", "banded"], Expect("one of banded-inverse, banded")]


class CorrelatedSection(Section):
    """Noise that takes back a part of earlier noise, at every node that adds noise to what it sends.

    Attributes:
        kind: `banded-inverse`: the inverse of the factor C has few bands; `banded`: C itself has (BandMF).
        bands: w; 1 is independent noise.
        between: least number of a trusted edge server's releases from one of a record to the next; other runs are
            refused. Null: no check.
    """

    kind: Kind = "banded-inverse"
    bands: Count = 4
    between: Count | None = None

    @property
    def noise(self) -> CorrelatedGaussian | None:
        """None where the noises are independent."""
        return None if self.bands == 1 else CorrelatedGaussian(self.kind, self.bands)


@lru_cache(maxsize=256)
def _roots(power: float, size: int) -> np.ndarray:
    """(size,) coefficients of (1 - x)^power."""
    index = np.arange(1.0, size)
    return np.concatenate([[1.0], np.cumprod((index - 1 - power) / index)])


def _inverse(series: np.ndarray, size: int) -> np.ndarray:
    """(size,) coefficients of 1 / series, which begins with 1."""
    found = np.zeros(size)
    found[0] = 1.0
    for n in range(1, size):
        known = min(n, len(series) - 1)
        found[n] = -(series[1 : known + 1] @ found[n - known : n][::-1])
    return found


@dataclass(frozen=True)
class CorrelatedGaussian(Gaussian):
    """The noise of a stream. Each release's own law is Gaussian, and so is the account of all: see the top.

    Sums of streams of different clocks have no account here, so no device hides another one (`stable`).

    >>> CorrelatedGaussian("banded-inverse", 3).mixed(5), CorrelatedGaussian("banded", 3).factor(5)
    (array([ 1.   , -0.5  , -0.125]), array([1.   , 0.5  , 0.375, 0.   , 0.   ]))
    """

    kind: Literal["banded-inverse", "banded"]
    bands: int
    stable: ClassVar[bool] = False

    def mixed(self, number: int) -> np.ndarray:
        """(n,) d_j of the newest draw, the one before it, ... in the release of this number from 1."""
        return self._columns(number)[1]

    def factor(self, size: int) -> np.ndarray:
        """(size,) c_j, the first column of C."""
        return self._columns(size)[0]

    def _columns(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return _columns(self.kind, self.bands, size)

    def key(self, streams: Streams, node: str, purpose: str, interval: int, slot: int, number: int) -> Any:
        """The keys of the draws that are in a release, the newest first."""
        assert number >= 1, "the planner numbers the releases of correlated noise"
        drawn = range(number, number - len(self.mixed(number)), -1)
        return tuple(streams.key(node, "noise-correlated", slot=each) for each in drawn)

    def add(self, vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[Any]) -> None:
        """See `NoiseLaw.add`; a release's noise has the same bits whatever it is added to."""
        for vector, level, drawn in zip(vectors, noise_stds.tolist(), keys, strict=True):
            check_holdable(level)
            noise = standard_normal(vector, generator_of(drawn[0]))
            for share, key in zip(self.mixed(len(drawn))[1:].tolist(), drawn[1:], strict=True):
                noise.add_(standard_normal(vector, generator_of(key)), alpha=share)
            vector.add_(noise, alpha=level)

    def variance(self, levels: np.ndarray) -> float:
        """Of each coordinate of the sum of a stream's releases under levels (r,)."""
        mixed = self.mixed(len(levels))
        held = [levels[first : first + len(mixed)] @ mixed[: len(levels) - first] for first in range(len(levels))]
        return float(np.square(held).sum())


@lru_cache(maxsize=1024)
def _columns(kind: str, bands: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """c (size,) and d, of a banded inverse no longer than its bands."""
    if kind == "banded-inverse":
        mixed = _roots(0.5, min(bands, size))
        return _inverse(mixed, size), mixed
    factor = _roots(-0.5, min(bands, size))
    return np.pad(factor, (0, size - len(factor))), _inverse(factor, size)


@dataclass(frozen=True)
class StreamPast:
    """What the noise streams above the records of a subnet's devices have covered so far; public.

    Attributes:
        moved: (s_c, r) x: how far each release moved by a record of each device, in units of its noise; 0 where the
            device took no part.
        counts: (s_c,) releases of the stream that covers each device: its own, or its edge server's.
    """

    moved: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, devices: int) -> StreamPast:
        """Of so many devices, before anything is released."""
        return cls(np.zeros((devices, 0)), np.zeros(devices, dtype=np.int64))

    @cached_property
    def likeness(self) -> tuple[bytes, bytes]:
        """Equal for subnets with equal pasts."""
        return self.moved.tobytes(), self.counts.tobytes()

    def counted(self, rows: np.ndarray, by_node: bool) -> StreamPast:
        """The past after a release of these devices, or of a node above all of them; but for what it moved."""
        counts = self.counts.copy()
        counts[slice(None) if by_node else rows] += 1
        return replace(self, counts=counts)

    def joined(
        self, noise: CorrelatedGaussian, uploads: Uploads, reach: Reach, liars: Sequence[int]
    ) -> tuple[StreamPast, Uploads, Reach]:
        """The past after these uploads, and the row of C (y / L) that they make known, as uploads of independent noise.

        Args:
            reach: of a record, in a release alone.
            liars: rows of devices that have no account.
        """
        by_node, rows = uploads.place.by_node, uploads.rows
        alone = reach.moved * (uploads.weights if by_node else 1.0)
        levels = np.broadcast_to(uploads.levels, rows.shape)
        there = np.arange(len(self.counts)) if by_node else rows
        after = self.counted(rows, by_node)
        moved = np.pad(self.moved, ((0, 0), (0, max(0, int(after.counts.max()) - self.moved.shape[1]))))
        moved[rows, self.counts[rows]] = np.divide(alone, levels, out=np.zeros(len(rows)), where=levels > 0)
        after = replace(after, moved=moved)
        factor = noise.factor(moved.shape[1])
        counts = after.counts[there].tolist()
        told = np.array(
            [(row[:count] * factor[:count][::-1]).sum() for row, count in zip(moved[there], counts, strict=True)]
        )
        kept = told > 0
        there, told = there[kept], told[kept]
        levels = uploads.levels if by_node else uploads.levels[kept]
        ones, honest = np.ones(len(there)), ~np.isin(there, liars)
        known = replace(uploads, rows=there, steps=ones, weights=ones, levels=levels, honest=honest)
        # Nothing amplifies: the row is of several batches, which may hold the record or not.
        return after, known, Reach(told * levels, ones, ones, "fixed", reach.bound)

    @property
    def nearest(self) -> tuple[int, int, int] | None:
        """The device of which two releases are nearest to each other, and their numbers; None where all have one."""
        found = [
            (int(gap), row, int(last) + 1)
            for row, moved in enumerate(self.moved)
            for gap, last in zip(np.diff(np.flatnonzero(moved)), np.flatnonzero(moved)[1:], strict=True)
        ]
        gap, row, last = min(found, default=(0, 0, 0))
        return (row, last - gap, last) if found else None

    def state(self) -> dict[str, Any]:
        """In tensors, for a checkpoint."""
        import torch

        return {"moved": torch.from_numpy(self.moved), "counts": torch.from_numpy(self.counts)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> StreamPast:
        """Go on from a `state`."""
        return cls(state["moved"].numpy(), state["counts"].numpy())
