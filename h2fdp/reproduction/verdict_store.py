"""Verdicts that were found before, so that a page keeps them when only some figures are made anew.

`verdicts.json`: figure -> data set -> what made its runs, the largest accounted epsilons, and claim -> column -> what
was found. `--check` replaces the figures and data sets that it has runs of. Of the others the findings are kept, and
judged again by the claims as they stand: a verdict and its remark are in the file for those who read it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.reproduction.evaluation import JudgedClaim, Row, concluded
from h2fdp.reproduction.figures_file import Column
from h2fdp.reproduction.quantities import Estimate, Finding
from h2fdp.reproduction.results import NO_RUNS
from h2fdp.reproduction.verdict import Verdict

VERDICTS = "verdicts.json"
Place = tuple[str, str]  # a figure and a data set


@dataclass(frozen=True)
class Provenance:
    """How the runs of a figure on a data set were made, and what was accounted of them."""

    made: Sequence[str]
    accounted: Mapping[Column, float]


@dataclass(frozen=True)
class VerdictStore:
    """What was found before.

    Attributes:
        judged: (claim, data set, column) -> what was found.
    """

    provenance: Mapping[Place, Provenance]
    judged: Mapping[tuple[str, str, Column], JudgedClaim]

    def completed(self, rows: Iterable[Row]) -> list[Row]:
        """Rows in which what has no runs now is as it was found before, judged by the claims as they are now."""
        return [replace(row, columns={column: self._known(row, column) for column in row.columns}) for row in rows]

    def _known(self, row: Row, column: Column) -> JudgedClaim:
        now = row.columns[column]
        before = self.judged.get((row.claim.id, row.data_set, column))
        if before is None or now.why != NO_RUNS:
            return now
        if before.finding is None:
            return before
        return concluded(row.claim, row.data_set, before.finding, before.target)

    def updated(self, rows: Iterable[Row], fresh: Mapping[Place, Provenance]) -> VerdictStore:
        """What is to be stored once figures on data sets were made anew."""
        judged = dict(self.judged)
        for row in rows:
            if (row.claim.figure, row.data_set) in fresh:
                judged |= {(row.claim.id, row.data_set, column): each for column, each in row.columns.items()}
        return VerdictStore({**self.provenance, **fresh}, judged)

    def write(self, path: Path, figures: Mapping[str, str]) -> None:
        """Write them; `figures` says of which figure a claim is, and claims that it does not know are left out."""
        found: dict[str, Any] = {}
        for (figure, data_set), each in self.provenance.items():
            shown = {"made": list(each.made), "accounted": dict(each.accounted), "claims": {}}
            found.setdefault(figure, {})[data_set] = shown
        for (claim, data_set, column), judged in self.judged.items():
            place = found.get(figures.get(claim, ""), {}).get(data_set)
            if place is not None:
                place["claims"].setdefault(claim, {})[column] = _plain(judged)
        write_text(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def read_verdicts(path: Path, figures: Collection[str]) -> VerdictStore:
    """What is stored about some figures; nothing where there is no file.

    Raises:
        UserError: it is not what `--check` writes.
    """
    if not path.is_file():
        return VerdictStore({}, {})
    provenance: dict[Place, Provenance] = {}
    judged: dict[tuple[str, str, Column], JudgedClaim] = {}
    try:
        for figure, data_sets in json.loads(path.read_text()).items():
            for data_set, found in data_sets.items() if figure in figures else ():
                provenance[figure, data_set] = Provenance(tuple(found["made"]), dict(found["accounted"]))
                for claim, columns in found["claims"].items():
                    judged |= {(claim, data_set, column): _judged(each) for column, each in columns.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"damaged ({error!r}); expected the file that --check wrote", str(path)) from None
    return VerdictStore(provenance, judged)


def _plain(judged: JudgedClaim) -> dict[str, Any]:
    """Without what has its default."""
    found: dict[str, Any] = {"verdict": str(judged.verdict)}
    found |= {key: value for key in ("target", "why", "remark", "absent") if (value := getattr(judged, key))}
    if judged.finding is not None:
        finding = judged.finding
        found |= {"size": _numbers(finding.size), "direction": _numbers(finding.direction), "seeds": finding.seeds}
    return found


def _numbers(estimate: Estimate) -> list[float | str | None]:
    """Three numbers that JSON can say."""
    known = (estimate.value, estimate.low, estimate.high)
    return [None if math.isnan(each) else str(each) if math.isinf(each) else each for each in known]


def _judged(values: Mapping[str, Any]) -> JudgedClaim:
    finding = None
    if "size" in values:
        finding = Finding(_estimate(values["size"]), _estimate(values["direction"]), int(values["seeds"]))
    rest = {key: values[key] for key in ("target", "why", "remark", "absent") if key in values}
    if not all(isinstance(rest.get(key, ""), str) for key in ("why", "remark")):
        raise TypeError("a remark is a text")
    return JudgedClaim(Verdict(values["verdict"]), finding, **rest)


def _estimate(numbers: Sequence[float | str | None]) -> Estimate:
    value, low, high = (math.nan if each is None else float(each) for each in numbers)
    return Estimate(value, low, high)
