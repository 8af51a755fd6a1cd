"""The schema of `claims.yaml`: a paper's claims as data."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Annotated

from pydantic import Field, model_validator

from experiments.reproduction.measures import MEASURES
from experiments.reproduction.points import Ladder, points_of
from experiments.reproduction.quantities import COMPARISONS, Comparison
from experiments.reproduction.verdict import Relation
from h2fdp.config import Section
from h2fdp.config.fields import Expect, NonNegative, Number, Text
from h2fdp.errors import not_one_of

_MEASURES, _COMPARISONS = ", ".join(MEASURES), ", ".join(COMPARISONS)
Percent = Annotated[float, Field(gt=0, lt=100), Expect("a percentage above 0 and below 100")]


class Claim(Section):
    """One claim of a paper.

    Attributes:
        figure: whose runs it speaks of.
        source: where the paper says it.
        words: what it says, in ours.
        measure: of each run (`MEASURES`); `target` is the accuracy, in percent, of those that cost until one.
        comparison: of the points (`COMPARISONS`).
        points: ladders of points of the figure's grid.
        relation: of what is found to the paper's number.
        paper: data set -> the paper's number; null where it names none, then 0 is meant.
        tolerance: in the number's unit; ours.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9\-]*$"), Expect("a name of lower-case letters, digits, dashes")]
    figure: Text
    source: Text
    words: Text
    measure: Annotated[str, Expect(f"one of {_MEASURES}")]
    target: Percent | None = None
    comparison: Annotated[str, Expect(f"one of {_COMPARISONS}")]
    points: Annotated[list[Ladder], Field(min_length=1), Expect("a list of ladders")]
    relation: Relation = "at least"
    paper: Annotated[dict[Text, Number | None], Field(min_length=1), Expect("data sets with numbers")]
    tolerance: NonNegative = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Claim:
        for word, known, what in ((self.measure, MEASURES, "measure"), (self.comparison, COMPARISONS, "comparison")):
            if word not in known:
                raise ValueError(f"{what}: {not_one_of(word, list(known))}")
        if MEASURES[self.measure].has_target != (self.target is not None):
            raise ValueError(f"{self.measure} {'needs a' if self.target is None else 'has no'} target")
        how = self.how
        if how.one_ladder and len(self.points) != 1:
            raise ValueError(f"{self.comparison} takes one ladder, found {len(self.points)}")
        for ladder in self.points:
            count = len(points_of(ladder))
            if count < how.points or (how.exact and count != how.points):
                least = "" if how.exact else "at least "
                raise ValueError(f"{self.comparison} takes {least}{how.points} points a ladder, found {count}")
        return self

    @property
    def compares(self) -> str:
        """A digest of what is measured and compared, whatever the paper says of it."""
        what = [self.measure, self.target, self.comparison, self.points]
        return blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=6).hexdigest()

    @property
    def how(self) -> Comparison:
        """The comparison itself."""
        return COMPARISONS[self.comparison]

    @property
    def unit(self) -> str:
        """Of the paper's number."""
        return self.how.unit or MEASURES[self.measure].unit


class ClaimsFile(Section):
    """All claims."""

    claims: Annotated[list[Claim], Field(min_length=1), Expect("a list of claims")]
