"""When two data sets are neighbours, and what that makes of a release (docs/privacy.md, "Adjacency").

`null-record`: one record becomes a null record, which contributes nothing, and D_i, q_i and weights stay. `add-remove`:
one record is missing; where all sums are divided by public numbers, and weights do not depend on D_i, its outputs are
those of a null record. `replace`: one record becomes another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from h2fdp.privacy.releases import Release

Adjacency = Literal["null-record", "add-remove", "replace"]

NOTES: Mapping[str, str] = {
    "add-remove": "adjacency add-remove: neighbours differ in one record that is there or not; the sampling rates and "
    "expected batches that a run uses, and what is chosen by them, are public, and not worked out anew for a neighbour",
    "replace": "adjacency replace: neighbours differ in one record (or device) that becomes another one; the "
    "ledger's sensitivities are about that",
}


@dataclass(frozen=True, slots=True)
class Replaced(Release):
    """A release whose sensitivity is about a record that becomes another one; the ledger's row says so."""

    def as_row(self) -> dict[str, Any]:
        """The ledger's row, with its `adjacency`."""
        return {**Release.as_row(self), "adjacency": "replace"}


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


def _replaced(release: Release) -> Replaced:
    return Replaced(**release.as_row() | {"sensitivity": release.sensitivity * factor_of(release)})
