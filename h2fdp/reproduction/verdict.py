"""The verdict on a claim, by rule: what was found, against the paper's number."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from h2fdp.reproduction.quantities import Estimate

Relation = Literal["at least", "at most"]


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    IN_DIRECTION = "holds in direction"
    FAILS = "does not hold"
    NOT_RUN = "not run"


def verdict(relation: Relation, number: float, tolerance: float, size: Estimate, direction: Estimate) -> Verdict:
    """Judge a claim that a quantity is at least, or at most, the paper's number.

    It *holds* when the whole interval of the size lies on the claimed side of the number, the tolerance given away, and
    for `at least` the interval of the direction lies above zero. It *holds in direction* when only the latter is so;
    a claim `at most` has no direction. Else it *does not hold*. Without an interval nothing is judged.

    Args:
        number: the paper's; 0 for a claim without one.
        direction: above zero where the sign is as claimed.

    >>> sure = Estimate(8.0, 6.5, 9.0)
    >>> [str(verdict("at least", number, 1.0, sure, sure)) for number in (6, 7.5, 12)]
    ['holds', 'holds', 'holds in direction']
    """
    if math.isnan(size.low) or math.isnan(direction.low):
        return Verdict.NOT_RUN
    if relation == "at most":
        return Verdict.HOLDS if size.high <= number + tolerance else Verdict.FAILS
    if direction.low <= 0:
        return Verdict.FAILS
    return Verdict.HOLDS if size.low >= number - tolerance else Verdict.IN_DIRECTION


def undecided(relation: Relation, number: float, tolerance: float, size: Estimate, direction: Estimate) -> bool:
    """Whether more seeds could still show a claim that does not hold, at least in direction.

    >>> undecided("at least", 6, 1, wide := Estimate(4.0, -1.0, 9.0), wide)
    True
    >>> undecided("at least", 6, 1, below := Estimate(-4.0, -9.0, -1.0), below)
    False
    """
    return size.low <= number + tolerance if relation == "at most" else direction.high > 0
