"""The names used in plans and ledgers: noise sources, aggregations, releases."""

from __future__ import annotations

from typing import Literal

NoiseSource = Literal["none", "device", "edge", "cloud"]
Tier = tuple[int, int]  # of local aggregations: the height of who aggregates, and of the node above it
UNTARGETED = "not targeted"  # the verdict on an observer that noise was not calibrated for
AggregationKind = Literal["local", "global"]
ReleaseKind = Literal["local", "global", "estimate", "step", "central", "output", "objective"]
