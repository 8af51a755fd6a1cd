"""Rows of a ledger: what an adjacency makes of a release, and rows read back as releases.

Adjacency says when two data sets are neighbours (docs/privacy.md). `null-record`: one record becomes a null record,
which contributes nothing, and D_i, q_i and weights stay. `add-remove`: one record is missing; where all sums are
divided by public numbers, and weights do not depend on D_i, its outputs are those of a null record. `replace`: one
record becomes another one.

A row that no run wrote is refused, so that nothing is left out of an account in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import Bound
from h2fdp.privacy.releases import RELEASE_KEYS, VOTE_KEYS, Adjacency, Release, rows_in
from h2fdp.privacy.trust_model import ReleaseKind, height_of, observers

ADJACENCY_NOTES: Mapping[str, str] = {
    "add-remove": "adjacency add-remove: neighbours differ in one record that is there or not; the sampling rates and "
    "expected batches that a run uses, and what is chosen by them, are public, and not worked out anew for a neighbour",
    "replace": "adjacency replace: neighbours differ in one record (or device) that becomes another one; the "
    "ledger's sensitivities are about that",
}


def under(adjacency: Adjacency, releases: Iterator[Release]) -> Iterator[Release]:
    """Releases stated for null records, under this adjacency."""
    return map(_replaced, releases) if adjacency == "replace" else releases


def factor_of(release: Release) -> float:
    """How much further a release moves when a record becomes another one than when it becomes a null record.

    Twice as far, by way of the null record. A model of norm tau moves by 2 tau either way, and a sum of clipped batch
    gradients by 2 eta m G; of Poisson batches the account needs both ways to the null record nevertheless.
    """
    both_ways = release.kind == "output" or (release.bound == "batch" and release.sampling == "fixed")
    return 1.0 if both_ways else 2.0


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
    if not isinstance(row, dict) or set(row) - {"adjacency"} not in (set(RELEASE_KEYS), {*RELEASE_KEYS, *VOTE_KEYS}):
        raise UserError(f"this row is not a release; expected the keys {', '.join(RELEASE_KEYS)}", where)
    if problem := next((key for key, fits in _FITS.items() if key in row and not fits(row[key])), None):
        raise UserError(f"no release of a run has {row[problem]!r} there", where, problem)
    if sizes is not None and (
        row["edge"] not in sizes or max(part.stop for part in rows_in(row["devices"])) > sizes[row["edge"]]
    ):
        raise UserError("the run's topology has no such devices", where, "devices")
    return Release(**row)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(value: Any, least: float, most: float = math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


_RANGES = re.compile(r"[1-9][0-9]{0,9}(-[1-9][0-9]{0,9})?(,[1-9][0-9]{0,9}(-[1-9][0-9]{0,9})?)*")
_OF_CLIPPED_BATCHES = {"bound": "batch", "own_gradient": 1.0}
_FITS: dict[str, Callable[[Any], bool]] = {
    "interval": _whole,
    "slot": _whole,
    "kind": lambda value: value in get_args(ReleaseKind),
    "edge": lambda value: isinstance(value, str),
    "devices": lambda value: isinstance(value, str) and _RANGES.fullmatch(value) is not None,
    "observer": lambda value: isinstance(value, str) and value in observers(height_of(value)),
    "sensitivity": lambda value: _number(value, 5e-324, 1e300),
    "noise_std": lambda value: _number(value, 0.0, 1e300),
    "steps": _whole,
    "sampling_rate": lambda value: _number(value, 0.0, 1.0),
    "sampling": lambda value: value in ("poisson", "fixed"),
    "bound": lambda value: value in get_args(Bound),
    "own_gradient": lambda value: _number(value, 5e-324, 1.0),
    "clip_norm": lambda value: _number(value, 5e-324, 1e300),
    "vote_share": lambda value: _number(value, 5e-324, 1.0),
}
