"""A claim's numbers and its verdict in words."""

from __future__ import annotations

import math

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim, Row
from experiments.reproduction.measures import MEASURES
from experiments.reproduction.quantities import Estimate
from experiments.reproduction.verdict import OPEN

_SIGNS = {"at least": "≥", "at most": "≤"}


def paper_words(row: Row) -> str:
    """What the paper says, as a relation to a number with its unit."""
    return claimed_words(row.claim, row.data_set)


def claimed_words(claim: Claim, data_set: str) -> str:
    """What the paper says of a data set."""
    number, at_least = claim.paper[data_set], claim.relation == "at least"
    tolerance = f" ({'−' if at_least else '+'} {claim.tolerance:g})" if claim.tolerance else ""
    if number is None:
        return ("> 0" if claim.comparison not in ("least rise", "least fall") else "every step") + tolerance
    return f"{_SIGNS[claim.relation]} {number:g} {claim.unit}{tolerance}"


def found_words(claim: Claim, judged: JudgedClaim) -> str:
    """What was found, with its interval over n seeds, and what its sign was judged by; a dash where nothing was."""
    if judged.finding is None:
        return "–"
    words = estimate_words(judged.finding.size, _places(claim))
    if claim.how.named:
        words += f"; {claim.how.named} {estimate_words(judged.finding.direction, MEASURES[claim.measure].places)}"
    words += f"; n = {judged.finding.seeds}" if claim.how.named else f", n = {judged.finding.seeds}"
    return words if judged.target is None else f"{words}, at {judged.target:.1f} %"


def number_words(claim: Claim, judged: JudgedClaim) -> str:
    """What was found, without its interval; a dash where nothing was."""
    if judged.finding is None:
        return "–"
    value = judged.finding.size.value
    if math.isinf(value):
        return "no gain"
    return _number(value, 0 if abs(value) >= 100 else _places(claim))


def verdict_text(judged: JudgedClaim) -> str:
    """The verdict with what it leaves out, as plain text."""
    if judged.remark in OPEN:  # a verdict and its opposite do not stand in one place
        return judged.remark
    return str(judged.verdict) + (f" ({judged.remark})" if judged.remark else "")


def estimate_words(estimate: Estimate, places: int) -> str:
    """A number and its interval; a multiple of no gain is none.

    >>> estimate_words(Estimate(6.04, 5.5, 7.25), 1)
    '6.0 [5.5, 7.2]'
    """
    if math.isinf(estimate.value):
        return "no gain to compare with"
    value = _number(estimate.value, places)
    if math.isnan(estimate.low):
        return value
    return f"{value} [{_number(estimate.low, places)}, {_number(estimate.high, places)}]"


def _places(claim: Claim) -> int:
    if claim.how.unit is None:
        return MEASURES[claim.measure].places
    return 2 if claim.how.unit == "times the gain" else 1


def _number(value: float, places: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{places}f}"
    return f"−{text[1:]}" if text.startswith("-") and float(text) else text.removeprefix("-")
