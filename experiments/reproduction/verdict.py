"""The verdict on a claim, by rule: what was found, against the paper's number."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from experiments.reproduction.quantities import Estimate

UNDECIDED, LESS_IF_ANY, BY_LESS = "undecided", "by less, if at all", "by less"
OPEN = (UNDECIDED, LESS_IF_ANY)  # remarks on claims that do not hold, but might with more seeds, at least in direction
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


def remark(
    judged: Verdict, relation: Relation, number: float, tolerance: float, size: Estimate, direction: Estimate
) -> str:
    """What a verdict leaves out.

    *Undecided*: the claim does not hold, but some number of the interval is as the paper says. *By less, if at all*:
    none is, but some have the claimed sign. *By less*: it holds in direction, and the whole interval misses the number.

    >>> wide, short, below = Estimate(4.0, -1.0, 9.0), Estimate(1.0, -1.0, 3.0), Estimate(-4.0, -9.0, -1.0)
    >>> [remark(Verdict.FAILS, "at least", 6, 1, each, each) for each in (wide, short, below)]
    ['undecided', 'by less, if at all', '']
    >>> small = Estimate(2.0, 1.0, 3.0)
    >>> remark(Verdict.IN_DIRECTION, "at least", 6, 1, small, small)
    'by less'
    """
    if judged is Verdict.FAILS and relation == "at most":
        return UNDECIDED if size.low <= number + tolerance else ""
    less = size.high < number - tolerance
    if judged is Verdict.FAILS and direction.high > 0:
        return LESS_IF_ANY if less else UNDECIDED
    return BY_LESS if judged is Verdict.IN_DIRECTION and less else ""
