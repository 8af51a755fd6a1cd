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
no more. A run that goes on under fresh draws takes back noise that it never released, which hides more, not less: its
rows are those of a new stream, whose numbers go on.

**Sums.** The devices of a secure sum have streams of their own. Who sees the sums sees them under noise of covariance

    Sigma_ts = sum_j p_jt p_js (D D^T)[r_j(t), r_j(s)],

where p_jt is the part of the noise of j, rho_j L_j, in the sum at t (0 where it is absent), and r_j(t) the number of
that release in its own stream; those whose noises the observer knows are left out. C = Cholesky(Sigma)^-1 is lower
triangular, so that all of the above holds for C y: given the rows before it, row t moves by at most sum_{s <= t} |C_ts|
x_s, x_s by which the record moves the sum at s. A sum adds a row to C and leaves those before it as they are, so that N
devices and T sums cost N T^3 / 3, as each peer knows other noises. Of several observers that know other noises, all are
covered by rows whose squares sum, up to each release, to the largest of their sums.

Sources: banded inverse square root: Kalinin, McKenna, Upadhyay, Lampert 2025; banded square root: Kalinin and Lampert
2024, of the shape of BandMF (Choquette-Choo et al. 2023); adaptivity, and non-negative factors: Denisov et al. 2022.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np

from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, adds_keys
from h2fdp.errors import EXPERIMENT_REFUSALS, NETWORK_REFUSALS, PLAN_REFUSALS, refused
from h2fdp.network import Topology
from h2fdp.privacy.mechanisms.secure_sums import SUMS
from h2fdp.privacy.places import Holder, Place
from h2fdp.privacy.vectors import Gaussian, check_holdable, standard_normal
from h2fdp.privacy.views import Past, Sensitivities, Uploads, variance_of
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


@adds_keys("PrivacySection")
class CorrelatedKeys(Section):
    """The key of a file's privacy section.

    Attributes:
        correlated: `{kind: banded, bands: 5}`: noise takes back a part of earlier noise of the same node; null:
            independent noise.
    """

    correlated: CorrelatedSection | None = None

    @property
    def noise_law(self) -> CorrelatedGaussian | None:
        """The law of all noise; None where noises are independent."""
        section = self.correlated
        return None if section is None or section.bands == 1 else CorrelatedGaussian(section.kind, section.bands)

    def alternatives(self, intervals: int) -> Iterator[Self]:
        """The section with ever more bands, unless the file states some, or none."""
        bands = 2
        while bands <= intervals and "correlated" not in self.model_fields_set:
            section = CorrelatedSection(kind="banded-inverse", bands=bands)
            yield self.model_copy(update={"correlated": section})
            bands *= 2


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

    Unless they are `Summed`, sums of streams of different clocks have no account, so no device hides another one
    (`stable`).

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

    @property
    def in_words(self) -> str:
        """The number of releases over which it is."""
        return f"noise correlated over {self.bands} releases"

    @property
    def of_sums(self) -> Summed:
        """The law where the devices' streams meet in sums."""
        return Summed(self.kind, self.bands)

    def begun(self, devices: int) -> StreamPast:
        """The past of the streams above so many devices before anything is released."""
        return StreamPast(np.zeros((devices, 0)), np.zeros(devices, dtype=np.int64))

    def _columns(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return _columns(self.kind, self.bands, size)

    def key(self, streams: Streams, node: str, purpose: str, interval: int, slot: int, number: int) -> Any:
        """The keys of the draws that are in a release, the newest first."""
        assert number >= 1, "the planner numbers the releases of correlated noise"
        drawn = range(number, number - len(self.mixed(number)), -1)
        return tuple(streams.key(node, "noise-correlated", slot=each) for each in drawn)

    def add(self, vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[Any]) -> None:
        """Add noise, see `NoiseLaw.add`; a release's noise has the same bits whatever it is added to."""
        for vector, level, drawn in zip(vectors, noise_stds.tolist(), keys, strict=True):
            check_holdable(level)
            noise = standard_normal(vector, generator_of(drawn[0]))
            for share, key in zip(self.mixed(len(drawn))[1:].tolist(), drawn[1:], strict=True):
                noise.add_(standard_normal(vector, generator_of(key)), alpha=share)
            vector.add_(noise, alpha=level)

    def covariances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The covariances of releases of one stream, elementwise, by their numbers from 1, under levels of 1; 0 of
        the number 0."""
        size = int(max(first.max(), second.max()))
        mixed = np.pad(self.mixed(size), (0, 2 * size))
        later = mixed[np.add.outer(np.arange(size + 1), np.arange(size))]  # by how many releases, and draws since
        shared = np.pad(np.cumsum(mixed[:size] * later, axis=1), ((0, 0), (1, 0)))
        return np.asarray(shared[np.abs(first - second), np.minimum(first, second)])

    def variance(self, levels: np.ndarray) -> float:
        """The variance of each coordinate of the sum of a stream's releases under levels (r,)."""
        mixed = self.mixed(len(levels))
        held = [levels[first : first + len(mixed)] @ mixed[: len(levels) - first] for first in range(len(levels))]
        return float(np.square(held).sum())


@dataclass(frozen=True)
class Summed(CorrelatedGaussian):
    """The noise of devices whose uploads are seen as sums alone: these have an account."""

    stable: ClassVar[bool] = True

    def begun(self, devices: int) -> SumPast:
        """The past of sums before anything is released."""
        return SumPast.after(np.zeros(devices, dtype=np.int64))


@lru_cache(maxsize=1024)
def _columns(kind: str, bands: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """c (size,) and d, of a banded inverse no longer than its bands."""
    if kind == "banded-inverse":
        mixed = _roots(0.5, min(bands, size))
        return _inverse(mixed, size), mixed
    factor = _roots(-0.5, min(bands, size))
    return np.pad(factor, (0, size - len(factor))), _inverse(factor, size)


@dataclass(frozen=True)
class StreamPast(Past):
    """The releases that noise streams above the records of a subnet's devices have covered so far; public.

    Attributes:
        moved: (s_c, r) x: how far each release moved by a record of each device, in units of its noise; 0 where the
            device took no part.
        counts: (s_c,) releases of the stream that covers each device: its own, or its edge server's.
    """

    moved: np.ndarray
    counts: np.ndarray

    @cached_property
    def likeness(self) -> tuple[bytes, ...]:
        """Equal for subnets with equal pasts."""
        return self.moved.tobytes(), self.counts.tobytes()

    def counted(self, rows: np.ndarray, by_node: bool) -> StreamPast:
        """The past after a release of these devices, or of a node above all of them; but for what it moved."""
        counts = self.counts.copy()
        counts[slice(None) if by_node else rows] += 1
        return replace(self, counts=counts)

    def joined(
        self, noise: CorrelatedGaussian, uploads: Uploads, sensitivities: Sensitivities, unaccounted: Sequence[int]
    ) -> tuple[StreamPast, Uploads, Sensitivities]:
        """The past after these uploads, and the row of C (y / L) that they reveal, as uploads of independent noise."""
        by_node, rows = uploads.place.by_node, uploads.rows
        alone = sensitivities.moved * (uploads.weights if by_node else 1.0)
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
        ones, honest = np.ones(len(there)), ~np.isin(there, unaccounted)
        known = replace(uploads, rows=there, steps=ones, weights=ones, levels=levels, honest=honest)
        # Nothing amplifies: the row is of several batches, which may hold the record or not.
        return after, known, Sensitivities(told * levels, ones, ones, "fixed", sensitivities.bound)

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

    def afresh(self) -> StreamPast:
        """The past of a run that goes on under draws of other keys: no earlier release reveals noise to come."""
        return replace(self, moved=np.zeros_like(self.moved))

    def state(self) -> dict[str, Any]:
        """The past in tensors, for a checkpoint."""
        import torch

        return {name: torch.from_numpy(each) for name, each in vars(self).items() if isinstance(each, np.ndarray)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """Go on from a `state`."""
        return cls(**{name: each.numpy() for name, each in state.items()})


_LEAST = 1e-24  # squared, in units of noise: a row of the ledger is of a record that moves something
_MOST_NUMBERS = 32_000_000  # of rows that are in memory at once

Rows = tuple[np.ndarray, ...]  # (sets, 1), (sets, 2), ...: of C, for each set of devices whose noises are public


@dataclass(frozen=True)
class SumPast(StreamPast):
    """The past where devices share the noise of a sum, each in a stream of its own.

    Attributes:
        moved: (s_c, T) how far each sum moved by a record of each device; both it and `parts` in units of the noise
            that the sum would have if it were independent.
        counts: (s_c,) releases of each device's own stream.
        parts: (s_c, T) p: of the noise of each device in each sum; 0 of who is absent, or has no account.
        numbers: (s_c, T) of each device's releases in its own stream; 0 where it is absent.
        alone: (sets, s_c) what each set of colluding devices has learned of each device so far, as a sum of squares;
            `peers`: what such sets have learned with one device more, a peer.
        rows: of C for both kinds of sets; none where they are too many, or a run goes on: they are worked out again.
    """

    parts: np.ndarray
    numbers: np.ndarray
    alone: np.ndarray
    peers: np.ndarray
    rows: tuple[Rows, Rows] = ((), ())

    @classmethod
    def after(cls, counts: np.ndarray) -> SumPast:
        """The past of which no release counts, though there were so many (s_c,)."""
        none, empty = np.zeros((1, len(counts))), np.zeros((len(counts), 0))
        return cls(empty, counts, empty, empty.astype(np.int64), none, none)

    @cached_property
    def likeness(self) -> tuple[bytes, ...]:
        """Equal for subnets with equal pasts."""
        return self.moved.tobytes(), self.counts.tobytes(), self.numbers.tobytes(), self.parts.tobytes()

    def afresh(self) -> SumPast:
        """The past under fresh draws, see `StreamPast.afresh`: sums that were lost revealed most to other sets of
        devices than the sums before them."""
        return SumPast.after(self.counts)

    def joined(
        self, noise: CorrelatedGaussian, uploads: Uploads, sensitivities: Sensitivities, unaccounted: Sequence[int]
    ) -> tuple[SumPast, Uploads, Sensitivities]:
        """The past after these uploads, see `StreamPast.joined`: the row is one of a node's own noise, and
        `sensitivities` have that of peers, too."""
        assert uploads.place.holder is Holder.SHARE, "its devices' noises are seen as a sum"
        level, rows = math.sqrt(variance_of(uploads.parts)) or 1.0, uploads.rows  # these alone hide nothing
        counts = self.counted(rows, by_node=False).counts

        def with_last(before: np.ndarray, newest: np.ndarray) -> np.ndarray:
            column = np.zeros((len(counts), 1), before.dtype)
            column[rows, 0] = newest
            return np.concatenate([before, column], axis=1)

        moved = with_last(self.moved, sensitivities.moved * uploads.weights / level)
        parts = with_last(self.parts, uploads.parts / level)
        after = replace(self, counts=counts, moved=moved, parts=parts, numbers=with_last(self.numbers, counts[rows]))
        colluding = uploads.place.tolerance.colluding
        (alone, of_alone), (peers, of_peers) = (after._row(noise, colluding + more, self.rows[more]) for more in (0, 1))
        before, known = (self.alone, self.peers), (self.alone + alone, self.peers + peers)
        gained, by_peers = (
            np.sqrt(np.maximum(now.max(axis=0) - then.max(axis=0), _LEAST)) * level
            for now, then in zip(known, before, strict=True)
        )
        there = np.flatnonzero(moved.any(axis=1))
        ones, honest = np.ones(len(there)), ~np.isin(there, unaccounted)
        as_node = replace(uploads, place=Place(Holder.NODE), levels=np.array([level]))
        seen = replace(as_node, rows=there, steps=ones, weights=ones, honest=honest)
        joint = Sensitivities(gained[there], ones, ones, "fixed", sensitivities.bound, of_peers=by_peers[there])
        return replace(after, alone=known[0], peers=known[1], rows=(of_alone, of_peers)), seen, joint

    def _row(self, noise: CorrelatedGaussian, known: int, before: Rows) -> tuple[np.ndarray, Rows]:
        """Squares (sets, s_c) of how far a record of each device moves the last row of C y, for each set of so many
        devices whose noises are known, and 0 for the devices of the set itself; the rows of C, if they are to be kept.

        Args:
            before: the rows for earlier sums, as far as they were kept.
        """
        devices, size = self.parts.shape
        sets = np.array(list(itertools.combinations(range(devices), min(known, devices - 1))), dtype=np.int64)
        together, found = max(1, 2 * _MOST_NUMBERS // size**2), []
        kept = together >= len(sets)
        for first in range(0, len(sets), together):
            rows, some = before if kept else (), sets[first : first + together]
            while len(rows) < size:
                rows = (*rows, self._next(noise, some, rows))
            squares = np.square(np.abs(rows[-1]) @ self.moved.T)
            np.put_along_axis(squares, some, 0.0, axis=1)
            found.append(squares)
        return np.concatenate(found), rows if kept else ()

    def _next(self, noise: CorrelatedGaussian, sets: np.ndarray, rows: Rows) -> np.ndarray:
        """(sets, t) the row of C that follows `rows`: C grows with Sigma, by a row for each sum.

        The draws that are new in sum t leave it a variance, given all sums before it, of no less than theirs.
        """
        size = len(rows) + 1
        parts, numbers, there = self.parts[:, :size], self.numbers[:, :size], self.parts[:, :size] > 0
        each = parts[:, -1:] * parts * noise.covariances(numbers[:, -1:], numbers)
        column = each.sum(axis=0) - each[sets].sum(axis=1)
        bare = there.sum(axis=0) == there[sets].sum(axis=1)  # sums of those devices alone say nothing about others
        column[bare | bare[:, -1:]] = 0.0
        column[:, -1] += bare[:, -1]
        newest, left = np.zeros(column.shape), column[:, -1].copy()
        newest[:, -1] = 1.0
        for at, row in enumerate(rows, start=1):
            explained = np.einsum("st,st->s", row, column[:, :at])
            newest[:, :at] -= explained[:, None] * row
            left -= explained**2
        return np.asarray(newest / np.sqrt(left)[:, None])


_KEY = "privacy.correlated"
_MOST_SETS = 20_000  # of devices whose noises an observer may know


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that have no account where a node takes back earlier noise of its own."""
    if experiment.privacy.noise_law is None:
        return
    method, placement, schedule = experiment.method, experiment.method.privacy, experiment.method.traits
    by_sender = "cloud" not in placement.trusted  # whose stream it is
    sums = by_sender and (placement.clips == "update" or (placement.accumulates and placement.clips != "record"))
    law, name = placement.noise_law, method.schedule.name
    decides = not schedule.foreseen or schedule.controlled or schedule.buffers
    independent = "or privacy.correlated: null"
    uploads = f"devices, hierarchical or local with noise: uploads, {independent}"
    yield from refused(
        "noise is correlated from one noisy update or average to the next, by who sends it",
        ("method.privacy", not sums, uploads, placement.name),
        ("method.privacy.law", sums and not law.stable, f"gaussian, {independent}", law.name),
        ("method.schedule", decides, f"fixed, {independent}", f"{name}, which decides who sends when, or how much"),
        ("privacy.calibration", experiment.calibration == "paper", f"accounted, {independent}", "paper"),
    )
    yield from refused(
        f"{method.objective.name} is one message of each device, which no model enters and no other follows",
        (_KEY, getattr(method.objective, "once", False), "null", "correlated noise"),
    )


@NETWORK_REFUSALS.register
def refusals_of_network(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of streams that meet above edge servers, or on their devices' way: they have no account."""
    if experiment.privacy.noise_law is None:
        return
    placement, trust, draw = experiment.method.privacy, topology.cloud_trust, experiment.training.draw
    sums = [subnet.size for subnet in network.subnets if placement.sees(subnet.trust) == "sum"]
    place, bits = placement.place(("secure-sum",), 1), placement.rounding
    known = 1 if place is None else 1 + place.tolerance.colluding
    sets = max(map(math.comb, sums, [known] * len(sums)), default=0)
    rounding, tiers = f"{SUMS}.rounding", f"{network.depth} tiers"
    null = "privacy.correlated: null"
    yield from refused(
        "correlated noise has an account for devices, their sums, and trusted edge servers",
        (_KEY, network.depth > 1, "null, or one tier of edge servers", tiers),
        (_KEY, placement.sees(trust) == "sum", "null, or an untrusted cloud", f"{trust} there"),
        (_KEY, topology.moving, "null, or devices that stay", topology.moving),
        (rounding, bool(sums) and bits is not None, f"null, as no integers are taken back, or {null}", bits),
        (f"{SUMS}.colluding", sets > _MOST_SETS, f"at most {_MOST_SETS:,} sets of colluding devices, or {null}", sets),
    )
    secret = draw is not None and placement.private and placement.protects == "device"
    yield from refused(
        "devices draw in secret whether they take part (training.participation)",
        (_KEY, secret, "null, as no draw amplifies it", "correlated noise"),
    )


@PLAN_REFUSALS.register
def refusals_of_plan(run: Any, pasts: Callable[[], Mapping[str, Past]]) -> Iterator[tuple[str, str]]:
    """Refusals of noise where sampling would be expected to amplify, and of releases that are nearer than stated."""
    if run.config.privacy.noise_law is None:
        return
    blueprint, between = run.blueprint, run.config.privacy.correlated.between
    sampled = run.placement.protects == "record" and blueprint.sampling == "poisson"
    if sampled and (blueprint.rates < 1).any():
        text = "no sampling of records amplifies correlated noise; expected sampling_rate: 1, or sampling: fixed"
        yield "training.sampling_rate", f"{text}, found rates from {blueprint.rates.min():.3g}"
        return
    covered = {} if between is None else pasts()
    for facts, subnet in zip(blueprint.facts, run.topology.subnets, strict=True):
        past = covered.get(facts.name)
        if facts.adds_noise != "edge" or not isinstance(past, StreamPast) or (nearest := past.nearest) is None:
            continue
        row, first, second = nearest
        if second - first < between:
            text = f"averages {first} and {second} of {facts.name} both have uploads of {subnet.device_name(row)}"
            text = f"{text}; expected at least {between} from one to the next, by training.device_turns, or less here"
            yield f"{_KEY}.between", text
            return
