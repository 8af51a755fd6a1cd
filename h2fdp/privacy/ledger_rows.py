"""Rows of a ledger as releases: what no run wrote is refused, so that nothing is left out of an account in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import Bound
from h2fdp.privacy.adjacency import Adjacency, Replaced
from h2fdp.privacy.releases import RELEASE_KEYS, VOTE_KEYS, Release, rows_in
from h2fdp.privacy.trust_model import ReleaseKind, height_of, observers


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
    row = {key: value for key, value in row.items() if key != "adjacency"} if isinstance(row, dict) else row
    if not isinstance(row, dict) or set(row) not in (set(RELEASE_KEYS), {*RELEASE_KEYS, *VOTE_KEYS}):
        raise UserError(f"this row is not a release; expected the keys {', '.join(RELEASE_KEYS)}", where)
    if problem := next((key for key, fits in _FITS.items() if key in row and not fits(row[key])), None):
        raise UserError(f"no release of a run has {row[problem]!r} there", where, problem)
    if sizes is not None and (
        row["edge"] not in sizes or max(part.stop for part in rows_in(row["devices"])) > sizes[row["edge"]]
    ):
        raise UserError("the run's topology has no such devices", where, "devices")
    return (Replaced if adjacency == "replace" else Release)(**row)


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
