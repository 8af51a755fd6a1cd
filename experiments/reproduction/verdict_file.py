"""The schema of `verdicts.json`: what `--check` found, for pages to come.

Figure -> data set -> what made its runs, the largest accounted epsilons, and claim -> what it compares and what was
found in each column.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from experiments.reproduction.evaluation import JudgedClaim
from experiments.reproduction.figures_file import Column
from experiments.reproduction.quantities import Estimate, Finding
from experiments.reproduction.verdict import Verdict
from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, Flag, NonNegative, Number, Text

Numbers = Annotated[
    list[float | Literal["inf", "-inf"] | None],
    Field(min_length=3, max_length=3),
    Expect("a number and the ends of its interval, -inf and inf as texts, null for none"),
]
_Word = Literal["holds", "holds in direction", "does not hold", "not run"]
_Remark = Literal["", "undecided", "by less, if at all", "by less"]


class StoredFinding(Section):
    """A claim in one column.

    Attributes:
        verdict, target, why, remark, absent: of `JudgedClaim`; what the claim says now is judged anew.
        size, direction, seeds: of its finding, where there is one.
    """

    verdict: Annotated[_Word, Expect("holds, holds in direction, does not hold or not run")]
    target: Number | None = None
    why: str = ""
    remark: Annotated[_Remark, Expect("undecided, by less, if at all or by less")] = ""
    absent: Flag = False
    size: Numbers | None = None
    direction: Numbers | None = None
    seeds: Count | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> StoredFinding:
        parts = [self.size, self.direction, self.seeds]
        if any(each is None for each in parts) and any(each is not None for each in parts):
            raise ValueError("expected size, direction and seeds, or none of them")
        for name, numbers in (("size", self.size), ("direction", self.direction)):
            if numbers is not None and (estimate := _estimate(numbers)).low > estimate.high:
                raise ValueError(f"{name}: expected a low end below the high end, found {numbers[1]} and {numbers[2]}")
        return self

    @property
    def judged(self) -> JudgedClaim:
        """As it was."""
        finding = None
        if self.size is not None and self.direction is not None and self.seeds is not None:
            finding = Finding(_estimate(self.size), _estimate(self.direction), self.seeds)
        return JudgedClaim(Verdict(self.verdict), finding, self.target, self.why, self.remark, self.absent)

    @classmethod
    def of(cls, judged: JudgedClaim) -> StoredFinding:
        """What is to be stored."""
        finding = judged.finding
        values: dict[str, Any] = {key: getattr(judged, key) for key in ("target", "why", "remark", "absent")}
        if finding is not None:
            values |= {"size": _numbers(finding.size), "direction": _numbers(finding.direction), "seeds": finding.seeds}
        return cls(verdict=judged.verdict.value, **values)


class StoredClaim(Section):
    """A claim: `compares` is a digest of what was compared (`Claim.compares`)."""

    compares: Text
    claimed: StoredFinding | None = None
    accounted: StoredFinding | None = None


class StoredFigure(Section):
    """A figure on a data set.

    Attributes:
        made: what made its runs.
        accounted: column -> the largest accounted epsilon of them, in epsilons that they are meant to have.
    """

    made: list[Text]
    accounted: dict[Column, NonNegative]
    claims: dict[Text, StoredClaim]


class VerdictsFile(Section):
    """All of them: figure -> data set -> what was found."""

    figures: dict[Text, dict[Text, StoredFigure]]


def _numbers(estimate: Estimate) -> list[float | str | None]:
    """Three numbers that JSON can say."""
    known = (estimate.value, estimate.low, estimate.high)
    return [None if math.isnan(each) else str(each) if math.isinf(each) else float(each) for each in known]


def _estimate(numbers: list[float | Literal["inf", "-inf"] | None]) -> Estimate:
    value, low, high = (math.nan if each is None else float(each) for each in numbers)
    return Estimate(value, low, high)
