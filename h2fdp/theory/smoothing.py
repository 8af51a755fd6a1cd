"""Estimates that settle: an exponential average that passes over what noise swamped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from h2fdp.theory.ranges import require


@dataclass(frozen=True)
class Smoothed:
    """An exponential average.

    Attributes:
        value: the average so far, at first the operator's own; None when there is none yet.
        weight: of each new value, above 0 and at most 1 (1 keeps the newest only).

    Raises:
        UserError: a weight out of its range.

    >>> Smoothed(4.0, weight=0.25).updated(8.0).updated(None).value, Smoothed(None, weight=0.25).updated(8.0).value
    (5.0, 8.0)
    """

    value: float | None
    weight: float

    def __post_init__(self) -> None:
        require(0 < self.weight <= 1, "weight", self.weight, "a number above 0 and at most 1")

    def updated(self, new: float | None) -> Smoothed:
        """The average with one more value; the same when there is none, the new one alone when it is the first."""
        if new is None:
            return self
        return replace(self, value=new if self.value is None else self.value + self.weight * (new - self.value))
