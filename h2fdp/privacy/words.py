"""The names used in plans and ledgers: noise sources, aggregations, releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

NoiseSource = Literal["none", "device", "edge", "cloud"]  # who adds the noise
ADDED_BY: Mapping[NoiseSource, str] = {
    "none": "nobody",
    "device": "each device",
    "edge": "the edge server",
    "cloud": "the cloud",
}
Tier = tuple[int, int]  # of local aggregations: the height of who aggregates, and of the node above it
UNTARGETED = "not targeted"  # the verdict on an observer that noise was not calibrated for
AggregationKind = Literal["local", "global"]
ReleaseKind = Literal["local", "global", "estimate", "step", "central", "output", "objective"]
