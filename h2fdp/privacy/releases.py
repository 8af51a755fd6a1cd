"""Rows of the ledger: what each observer receives in one interval, what an adjacency makes of it, and rows read back.

Rows are computed from the plan of an interval before it starts, so they can be on disk before anything leaves.

Adjacency says when two data sets are neighbours (docs/privacy.md). `null-record`: one record becomes a null record,
which contributes nothing, and D_i, q_i and weights stay. `add-remove`: one record is missing; where all sums are
divided by public numbers, and weights do not depend on D_i, its outputs are those of a null record. `replace`: one
record becomes another one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import Bound, Sampling
from h2fdp.privacy.places import Holder, Observer, ReleaseKind, height_of, observers
from h2fdp.privacy.vectors import GAUSSIAN, NOISE_LAWS
from h2fdp.privacy.views import Merged, Sensitivities, Uploads, View, views

Adjacency = Literal["null-record", "add-remove", "replace"]

ADJACENCY_NOTES: Mapping[str, str] = {
    "add-remove": "adjacency add-remove: neighbours differ in one record that is there or not; the sampling rates and "
    "expected batches that a run uses, and what is chosen by them, are public, and not worked out anew for a neighbour",
    "replace": "adjacency replace: neighbours differ in one record (or device) that becomes another one; the "
    "ledger's sensitivities are about that",
}


@dataclass(frozen=True, slots=True)
class Release:
    """A group of equal releases: one noisy vector for each of `devices`, as one observer sees it.

    Attributes:
        interval: from 1; 0, -1, ... of what is released before the first.
        devices: the devices whose records it covers, as numbers within the subnet from 1, in ranges: "1-3,5".
        sensitivity: how far one record of such a device moves what the observer sees (L2, or in the norm of the law).
        noise_std: standard deviation of the noise that the observer cannot subtract.
        steps: m, the local steps accumulated since the last released model.
        sampling_rate: q of these devices.
        sampling: how their batches are drawn; `poisson` ones amplify, and `allocated` ones of an epoch, whose row is
            that of all its 1 / q steps.
        bound: the kind of bound on the sensitivity, see `ReleaseType`.
        own_gradient: how far a draw's own gradient moves its step under the bound `record`, in units of 2 eta G.
        adjacency: what the sensitivity is about; of rows for which it is `replace` the ledger says so.
        law: of the noise, in whose norm the sensitivity is; the ledger says so where it is not `gaussian`.
        moves: devices change their edge server in this run, so that one device may have several rows; the ledger says
            so, and no account is made of such rows without knowing whose they are.
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
    adjacency: Adjacency = "null-record"
    law: str = GAUSSIAN.name
    moves: bool = False

    def as_row(self) -> dict[str, Any]:
        """The ledger's row."""
        row = dict(zip(RELEASE_KEYS, _values_of(self), strict=True))
        return row | {key: getattr(self, key) for key, usual in _USUAL.items() if getattr(self, key) != usual}


_USUAL = {"adjacency": "null-record", "law": GAUSSIAN.name, "moves": False}  # of keys that are left out then
RELEASE_KEYS = tuple(each.name for each in fields(Release) if each.name not in _USUAL)
_values_of = attrgetter(*RELEASE_KEYS)


class AlikeReleases(NamedTuple):
    """The releases of a subnet, and the edge servers of all subnets that have the same ones, but for the name."""

    edges: Sequence[str]
    releases: Sequence[Release]


def releases(
    uploads: Uploads,
    kind: ReleaseKind,
    sensitivities: Sensitivities,
    above: Sequence[Merged],
    levels: Mapping[Observer, int],
    peers: bool,
) -> Iterator[Release]:
    """The ledger's rows of one upload, for all observers; see `views`.

    A straggler's upload holds fewer steps, and is written down as what it is; its noise is that of the planned steps.
    """
    seen = list(views(uploads, sensitivities, above, levels, peers))
    if uploads.place.holder is Holder.STEP:
        yield from _of_steps(uploads, kind, sensitivities, seen)
        return
    groups_of: dict[int, list[_Group]] = {}  # several observers see one view
    for observer, view in seen:
        if id(view) not in groups_of:
            groups_of[id(view)] = _groups(uploads, sensitivities, view)
        yield from _rows(uploads, kind, uploads.segment.last_slot, sensitivities, observer, groups_of[id(view)])


def _of_steps(
    uploads: Uploads, kind: ReleaseKind, sensitivities: Sensitivities, seen: Sequence[tuple[Observer, View]]
) -> Iterator[Release]:
    """A row for each slot and observer, of the devices that do a step there and whose upload arrives.

    Of an epoch the first step alone has one. A record is in one batch of an epoch, whose order no record changes: all
    other steps are made of earlier outputs and other records, so that an epoch costs no more than a step; less, where
    the record chose its batch by itself.
    """
    for step in range(1, int(uploads.steps.max(initial=0)) + 1) if seen else ():
        counts = uploads.steps >= step
        if uploads.epochs is not None:
            counts &= (step - 1) % uploads.epochs == 0
        groups = _groups(uploads, sensitivities, seen[0][1], counts)  # all see the same
        for observer, _ in seen:
            yield from _rows(uploads, kind, uploads.segment.first_slot + step, sensitivities, observer, groups)


_Group = tuple[tuple[float, ...], str]  # sensitivity, noise, rate, steps, own gradient; the devices that they are of


def _groups(uploads: Uploads, moves: Sensitivities, view: View, present: np.ndarray | None = None) -> list[_Group]:
    """One for each distinct (sensitivity, noise, rate, steps, own gradient), of honest devices.

    Args:
        present: (s,) the devices whose rows are wanted; None for all.
    """
    count = len(uploads.rows)
    own = np.ones(count) if moves.own_gradient is None else moves.own_gradient
    columns = [uploads.rows, view.moved, view.cover, moves.rates, moves.steps * np.ones(count), own]
    if masks := [each for each in (present, uploads.honest) if each is not None]:
        columns = [column[np.logical_and.reduce(masks)] for column in columns]
    groups: dict[tuple[float, ...], list[int]] = {}
    for row, *values in zip(*(column.tolist() for column in columns), strict=True):
        groups.setdefault(tuple(values), []).append(row)
    return [(values, device_ranges(groups[values])) for values in sorted(groups)]


def _rows(
    uploads: Uploads, kind: ReleaseKind, slot: int, moves: Sensitivities, observer: Observer, groups: list[_Group]
) -> Iterator[Release]:
    for (sensitivity, noise_std, rate, steps, own_gradient), devices in groups:
        assert noise_std > 0 or moves.bound == "none", "no node outside the trusted chain sees an update without noise"
        yield Release(
            uploads.segment.interval + 1,
            slot,
            kind,
            uploads.edge,
            devices,
            observer,
            sensitivity,
            noise_std,
            int(steps),
            rate,
            moves.sampling,
            moves.bound,
            own_gradient,
            law=moves.law,
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


def under(adjacency: Adjacency, releases: Iterator[Release]) -> Iterator[Release]:
    """Releases stated for null records, under this adjacency."""
    return map(_replaced, releases) if adjacency == "replace" else releases


def factor_of(release: Release) -> float:
    """The factor by which a release moves further when a record becomes another one than when it becomes a null record.

    Twice as far, by way of the null record. A model of norm tau moves by 2 tau either way, and a sum of clipped batch
    gradients by 2 eta m G; where a Poisson batch may lack the record, the pair needs both ways to the null record.
    """
    certain = release.sampling == "fixed" or release.sampling_rate == 1
    return 1.0 if release.kind == "output" or (release.bound == "batch" and certain) else 2.0


def _replaced(release: Release) -> Release:
    return replace(release, sensitivity=release.sensitivity * factor_of(release), adjacency="replace")


def release_of(row: dict[str, Any], where: str, sizes: Mapping[str, int] | None) -> Release:
    """A row of the ledger as a release.

    Args:
        where: the row's file and line, for messages.
        sizes: edge server -> number of its devices; None where the ledger is all there is.

    Raises:
        UserError: a row that no run wrote; nothing is left out of an account in silence.
    """
    if isinstance(row, dict) and not set(row) & set(_OF_CLIPPED_BATCHES):  # a ledger from before there were others
        row = row | _OF_CLIPPED_BATCHES
    adjacency = row.get("adjacency", "null-record") if isinstance(row, dict) else None
    if adjacency not in get_args(Adjacency):
        raise UserError(f"no release of a run has {adjacency!r} there", where, "adjacency")
    if not isinstance(row, dict) or set(row) - set(_USUAL) != set(RELEASE_KEYS):
        raise UserError(f"this row is not a release; expected the keys {', '.join(RELEASE_KEYS)}", where)
    if problem := next((key for key, fits in _FITS.items() if key in row and not fits(row[key])), None):
        raise UserError(f"no release of a run has {row[problem]!r} there", where, problem)
    if row["sampling"] == "allocated" and not _is_share(row["sampling_rate"]):
        text = f"an epoch is t whole batches; expected a rate of 1 / t, found {row['sampling_rate']}"
        raise UserError(text, where, "sampling_rate")
    if sizes is not None and (
        row["edge"] not in sizes or max(part.stop for part in rows_in(row["devices"])) > sizes[row["edge"]]
    ):
        raise UserError("the run's topology has no such devices", where, "devices")
    return Release(**row)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(rate: float) -> bool:
    return rate > 0 and math.isclose(rate * round(1 / rate), 1)


_OF_PRELUDES = range(-99, 1)  # numbers of statistics that are released before the first interval


def _number(value: Any, least: float, most: float = math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


_RANGES = re.compile(r"[1-9][0-9]{0,9}(-[1-9][0-9]{0,9})?(,[1-9][0-9]{0,9}(-[1-9][0-9]{0,9})?)*")
_OF_CLIPPED_BATCHES = {"bound": "batch", "own_gradient": 1.0}
_FITS: dict[str, Callable[[Any], bool]] = {
    "interval": lambda value: _whole(value) or value in _OF_PRELUDES,
    "slot": _whole,
    "kind": lambda value: value in get_args(ReleaseKind),
    "edge": lambda value: isinstance(value, str),
    "devices": lambda value: isinstance(value, str) and _RANGES.fullmatch(value) is not None,
    "observer": lambda value: isinstance(value, str) and value in observers(height_of(value)),
    "sensitivity": lambda value: _number(value, 5e-324, 1e300),
    "noise_std": lambda value: _number(value, 0.0, 1e300),
    "steps": _whole,
    "sampling_rate": lambda value: _number(value, 0.0, 1.0),
    "sampling": lambda value: value in get_args(Sampling),
    "bound": lambda value: value in get_args(Bound),
    "own_gradient": lambda value: _number(value, 5e-324, 1.0),
    "law": lambda value: value in NOISE_LAWS,
    "moves": lambda value: isinstance(value, bool),
}
