"""How many local aggregations each tier of a network makes."""

from __future__ import annotations

from collections.abc import Iterable

from h2fdp.privacy import Tier
from h2fdp.schedules import AggregationTimes
from h2fdp.topology import Topology


def tier_aggregations(aggregation_times: AggregationTimes, topology: Topology, local_steps: int) -> dict[Tier, int]:
    """The local aggregations of each tier in an interval of this length; none in a network of one tier.

    An aggregator makes those of its own height, and those of heights up to the next node above it.
    """
    if topology.depth == 1:
        return {}
    heights = aggregation_times.heights(local_steps, topology.depth)[:-1]
    parents = [(each.name, each.parent) for each in topology.subnets]
    parents += [(each.name, each.parent) for each in topology.aggregators]
    tiers = {(topology.height(name), topology.height(parent)) for name, parent in parents}
    return {(own, above): sum(own <= height < above for height in heights) for own, above in sorted(tiers)}


def most_of_tiers(aggregation_times: AggregationTimes, topology: Topology, lengths: Iterable[int]) -> dict[Tier, int]:
    """The most local aggregations that each tier makes in an interval of any of these lengths."""
    most: dict[Tier, int] = {}
    for length in lengths:
        for tier, count in tier_aggregations(aggregation_times, topology, length).items():
            most[tier] = max(most.get(tier, 0), count)
    return most
