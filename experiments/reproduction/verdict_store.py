"""Verdicts that were found before, so that a page keeps them when only some figures are made anew.

`--check` replaces those of the figures and data sets that it has runs of. Of the others the findings are kept, and
judged again by the claims as they stand: a verdict and its remark are in the file for those who read it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.reproduction.evaluation import JudgedClaim, Row, concluded
from experiments.reproduction.figures_file import COLUMNS, Column
from experiments.reproduction.results import NO_RUNS
from experiments.reproduction.verdict import Verdict
from experiments.reproduction.verdict_file import StoredFinding, VerdictsFile
from h2fdp.config import check, read_document
from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text

VERDICTS = "verdicts.json"
CHANGED = "claims.yaml compares other points, or otherwise, than when it was found; its figure is to be run again"
Place = tuple[str, str]  # a figure and a data set


@dataclass(frozen=True)
class Provenance:
    """How the runs of a figure on a data set were made, and what was accounted and compared of them.

    Attributes:
        compares: claim -> what it compared (`Claim.compares`).
    """

    made: Sequence[str]
    accounted: Mapping[Column, float]
    compares: Mapping[str, str]


@dataclass(frozen=True)
class VerdictStore:
    """What was found before.

    Attributes:
        judged: (claim, data set, column) -> what was found.
    """

    provenance: Mapping[Place, Provenance]
    judged: Mapping[tuple[str, str, Column], JudgedClaim]

    @property
    def data_sets(self) -> list[str]:
        """Those of which anything is stored."""
        return list(dict.fromkeys(data_set for _, data_set in self.provenance))

    def completed(self, rows: Iterable[Row]) -> list[Row]:
        """Rows in which what has no runs now is as it was found before, judged by the claims as they are now."""
        return [replace(row, columns={column: self._known(row, column) for column in row.columns}) for row in rows]

    def _known(self, row: Row, column: Column) -> JudgedClaim:
        now = row.columns[column]
        before = self.judged.get((row.claim.id, row.data_set, column))
        if before is None or now.why != NO_RUNS:
            return now
        if before.absent:
            return before
        place = self.provenance.get((row.claim.figure, row.data_set))
        if place is None or place.compares.get(row.claim.id) != row.claim.compares:
            return JudgedClaim(Verdict.NOT_RUN, why=CHANGED)
        return before if before.finding is None else concluded(row.claim, row.data_set, before.finding, before.target)

    def updated(self, rows: Iterable[Row], fresh: Mapping[Place, Provenance]) -> VerdictStore:
        """What is to be stored once figures on data sets were made anew."""
        judged = dict(self.judged)
        for row in rows:
            if (row.claim.figure, row.data_set) in fresh:
                judged |= {(row.claim.id, row.data_set, column): each for column, each in row.columns.items()}
        return VerdictStore({**self.provenance, **fresh}, judged)

    def rejudged(self, rows: Iterable[Row]) -> VerdictStore:
        """The same findings with the verdicts of some rows, which these findings had led to."""
        now = {(row.claim.id, row.data_set, column): each for row in rows for column, each in row.columns.items()}
        changed = {key: now[key] for key, before in self.judged.items() if key in now and now[key].why != CHANGED}
        return VerdictStore(self.provenance, {**self.judged, **changed})

    def write(self, path: Path, figures: Mapping[str, str]) -> None:
        """Write them; `figures` says of which figure a claim is, and claims that it does not know are left out."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for (figure, data_set), each in self.provenance.items():
            shown = {"made": list(each.made), "accounted": dict(each.accounted), "claims": {}}
            found.setdefault(figure, {})[data_set] = shown
        for (claim, data_set, column), judged in self.judged.items():
            figure = figures.get(claim, "")
            place = self.provenance.get((figure, data_set))
            if place is not None and claim in place.compares:
                columns = found[figure][data_set]["claims"].setdefault(claim, {"compares": place.compares[claim]})
                columns[column] = StoredFinding.of(judged).model_dump(exclude_defaults=True)
        write_text(path, json.dumps({"figures": found}, indent=1, ensure_ascii=False) + "\n")


def read_verdicts(path: Path, figures: Collection[str], *, required: bool = False) -> VerdictStore:
    """What is stored about some figures; nothing where there is no file.

    Raises:
        UserError: it is not what `--check` writes, or is required and not there.
    """
    if not path.is_file():
        if required:
            raise UserError("no such file; expected the one that --check writes", str(path))
        return VerdictStore({}, {})
    provenance: dict[Place, Provenance] = {}
    judged: dict[tuple[str, str, Column], JudgedClaim] = {}
    for figure, data_sets in check(VerdictsFile, read_document(path)).figures.items():
        for data_set, found in data_sets.items() if figure in figures else ():
            compares = {claim: each.compares for claim, each in found.claims.items()}
            provenance[figure, data_set] = Provenance(tuple(found.made), dict(found.accounted), compares)
            for claim, each in found.claims.items():
                columns = {column: getattr(each, column) for column in COLUMNS}
                judged |= {(claim, data_set, column): one.judged for column, one in columns.items() if one is not None}
    return VerdictStore(provenance, judged)
