"""What observers see of a subnet above its own average: its share in each vector, and the noise that covers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from h2fdp.privacy import TierVector


@dataclass(frozen=True)
class UpperVector:
    """What a node sends up of the last segment of a stretch.

    Attributes:
        variance: of each coordinate of the noise of that aggregation, but what colluding devices tell.
        exposure: the largest share, times rate, of a device whose update is raw in it; 0 where none is.
        known: the largest variance that one node of another branch knows, for each subnet below of which anything is
            new; also says which these are.
        shares: of their averages in it.
    """

    variance: float
    exposure: float
    known: Mapping[str, float]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class UpperVectors:
    """The averages that are made above those of subnets.

    Attributes:
        of_subnets: subnet -> segment -> the vectors above its average, from the lowest on.
    """

    of_subnets: dict[str, dict[int, tuple[TierVector, ...]]] = field(default_factory=dict)

    def averaged(
        self, fresh: Sequence[tuple[float, UpperVector]], level: float, segment: int, summed: bool = True
    ) -> tuple[float, dict[str, float], dict[str, float]]:
        """Note an average as one above those of the subnets in it.

        Args:
            fresh: weight, or reach, and vector of each child of which anything new is in it.
            level: of the noise that its aggregator adds.
            summed: it is a sum of what the children send, so that the noise of each of them hides the others.

        Returns:
            Its variance, and `known` and `shares` as `UpperVector` has them.
        """
        variance = level**2 + sum(share**2 * vector.variance for share, vector in fresh if summed)
        known: dict[str, float] = {}
        shares: dict[str, float] = {}
        for at, (share, vector) in enumerate(fresh):
            others = [each**2 * other.variance for place, (each, other) in enumerate(fresh) if place != at]
            for subnet, inner in vector.known.items():
                known[subnet] = max([share**2 * inner, *others]) if summed else 0.0
                shares[subnet] = share * vector.shares[subnet]
        for subnet, share in shares.items():
            seen = TierVector(share=share, noise_std=math.sqrt(variance), known=math.sqrt(known[subnet]))
            of_segments = self.of_subnets.setdefault(subnet, {})
            of_segments[segment] = (*of_segments.get(segment, ()), seen)
        return variance, known, shares


def summed(
    last: Mapping[str, int], averaged: Sequence[tuple[str, float, float]]
) -> dict[str, dict[int, tuple[TierVector, ...]]]:
    """Subnet -> segment -> the vector that a sum of subnets' last averages is, see `IntervalPlan.vectors`.

    Args:
        last: subnet -> number of its last segment.
        averaged: of each subnet of which anything new is in it: name, weight, variance of the noise on its average.
    """
    parts = {name: weight**2 * variance for name, weight, variance in averaged}
    level = math.sqrt(sum(parts.values()))
    found: dict[str, dict[int, tuple[TierVector, ...]]] = {}
    for name, weight, _ in averaged:
        known = max((part for other, part in parts.items() if other != name), default=0.0)
        found[name] = {last[name]: (TierVector(share=weight, noise_std=level, known=math.sqrt(known)),)}
    return found
