"""Facts that the cloud knows before anything is trained: of a subnet, who adds noise, sees what, and whose records
count; of each tier, how many local aggregations it makes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Literal

import numpy as np

from h2fdp.algorithms import Visible
from h2fdp.network import Topology
from h2fdp.privacy import Observer, Pipeline, Place, Sampling, Tier, vectors_of_observers
from h2fdp.privacy.places import Holder, NoiseSource
from h2fdp.protocol.arrivals import Points
from h2fdp.schedules import AggregationTimes
from h2fdp.training.batches import steps_per_epoch


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


Weighting = Literal["uniform", "by-size"]


@dataclass(frozen=True)
class SubnetFacts:
    """Public facts about a subnet: the cloud plans with it.

    Attributes:
        places: where the noise is added on what 1, 2, ... of the aggregators above its devices average; None for none.
        records: (s_c,) D_i.
        sampling_rates: (s_c,) q_i.
        sampling: how batches are drawn.
        in_epochs: an interval is whole epochs, in each of which every record is drawn once.
        edge_is_cloud: the edge server is the cloud's own (a star).
        access_points: what its devices' messages go through: the edge server itself, unless these say otherwise.
        heights: of the aggregators above the devices, from the edge server up to the one below the cloud.
        depth: tiers of aggregators in the whole network.
        company: devices below the highest of them, which see its broadcasts; None: those of the subnet.
        sums: places in `heights`, from 1 on, of aggregators that hold secure sums of what their children send.
        cloud_sums: whether the cloud holds one.
        network: devices of the whole network: all receive the models of a cloud that does.
        pipeline: the stages of its devices' uploads.
        visible: what an aggregation is assumed to show: the `sum` of uploads, or `each`.
        sealed: what edge servers send up passes stages, or makes no sum: no sum above the subnet's own hides anything.
        unaccounted: rows of devices that have no account, as they send what they like.
        exposed: the lowest level at which such a node above the devices, or an informed one among them, sees their
            vectors and may pass them on: 0 for single uploads; None where there is none.
        follows: where devices move, observer -> (s_c,) whether it has an account of the device elsewhere but is not
            below or above this subnet's uploads: then it sees what all see. None where devices do not move.
        eases: (s_c,) r_i of devices that ask for an epsilon of their own (`privacy.own_targets`); None where none does.
    """

    name: str
    places: tuple[Place | None, ...]
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    in_epochs: bool = False
    edge_is_cloud: bool = False
    access_points: Points = ()
    heights: tuple[int, ...] = (1,)
    depth: int = 1
    company: int | None = None
    sums: frozenset[int] = frozenset()
    cloud_sums: bool = False
    network: int = 0
    pipeline: Pipeline = Pipeline()  # noqa: RUF009 - a frozen value
    visible: Visible = "sum"
    sealed: bool = False
    unaccounted: tuple[int, ...] = ()
    exposed: int | None = None
    follows: tuple[tuple[Observer, tuple[bool, ...]], ...] | None = None
    eases: np.ndarray | None = None

    @cached_property
    def likeness(self) -> Hashable:
        """All of it but names: subnets with equal ones are planned alike where nothing is drawn for them.

        >>> one, other, larger = (
        ...     SubnetFacts(name, (None,), np.array([size]), np.array([0.1]), "poisson")
        ...     for name, size in (("a", 5), ("b", 5), ("c", 6))
        ... )
        >>> one.likeness == other.likeness, one.likeness == larger.likeness
        (True, False)
        """
        kept_fields = _but_names(self)
        return tuple((each.dtype.str, each.tobytes()) if isinstance(each, np.ndarray) else each for each in kept_fields)

    def passed(self, height: int) -> int:
        """The number of aggregators above the devices that average the uploads of an aggregation of this height."""
        return sum(each <= height for each in self.heights)

    def tier(self, height: int) -> Tier:
        """The tier of the local aggregation that this subnet has where aggregations are of this height."""
        place = self.passed(height)
        return self.heights[place - 1], (*self.heights, self.depth + 1)[place]

    @property
    def place(self) -> Place | None:
        """The place where the noise on vectors that go all the way up is added."""
        return self.places[-1]

    @property
    def adds_noise(self) -> NoiseSource:
        """The party that adds that noise."""
        return "none" if self.place is None else self.place.source(len(self.heights))

    @property
    def shares_noise(self) -> bool:
        """Whether devices add shares of one noise."""
        return self.place is not None and self.place.holder is Holder.SHARE

    def vectors_seen(self, passed: int, cloud_sums: bool = False) -> dict[Observer, int]:
        """The vectors that observers see of an upload that so many aggregators average, see `vectors_of_observers`.

        Args:
            cloud_sums: the aggregation is a secure sum of the cloud's.
        """
        assert self.place is not None, "observers are those of what noise covers"
        seen = vectors_of_observers(self.place, self.heights, passed, self.edge_is_cloud, self.sums, cloud_sums)
        if self.shown is None:
            return seen
        # Where no sum hides it, everybody is assumed to see the first vector that has noise.
        most = max(self.shown, min(self.place.trusted, passed))
        return {observer: min(level, most) for observer, level in seen.items()}

    @property
    def shown(self) -> int | None:
        """The level of `vectors_seen` above which nothing is hidden by what it is added to; None: every sum hides."""
        shown = [0] if self.visible == "each" else [1] if self.sealed else []
        return min(shown if self.exposed is None else [*shown, self.exposed], default=None)

    @property
    def peers(self) -> bool:
        """Whether other devices receive the same broadcasts."""
        return (self.network if self.cloud_sums else self.company or len(self.records)) > 1

    @property
    def sees_sums(self) -> bool:
        """Whether anybody above its devices is assumed to see sums alone."""
        return self.shares_noise or bool(self.sums) or self.cloud_sums

    @property
    def points(self) -> Points:
        """Access points and the number of devices of each."""
        return self.access_points or ((self.name, len(self.records)),)

    @property
    def steps_per_epoch(self) -> np.ndarray:
        """(s_c,) batches in which a device goes through its records once."""
        return steps_per_epoch(self.sampling_rates)

    def shares(self, rows: np.ndarray, weighting: Weighting) -> np.ndarray:
        """rho_j of these devices: equal, or proportional to D_j, times what is left of who asks for an epsilon of its
        own; they sum to 1."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        if self.eases is not None:
            counts = counts * self._left[rows]
        return np.asarray(counts / counts.sum())

    def mass(self, rows: np.ndarray, weighting: Weighting) -> float:
        """The mass by which the subnet has its share, of these devices: 1, or their records, times what is left of the
        weight of a noise that covers devices which ask for an epsilon of their own; 0 without devices."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        whole = float(counts.sum()) if weighting == "by-size" else float(len(rows) > 0)
        if self.eases is None or not whole:
            return whole
        left = float(counts @ self._left[rows] / counts.sum())
        return whole * left * (left if self.shares_noise or self.place == Place(Holder.NODE) else 1.0)

    def asked(self, reach: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(s,) the noise that these devices ask for, where they reach so far (s,)."""
        return reach if self.eases is None else reach / self.eases[rows]

    @cached_property
    def _left(self) -> np.ndarray:
        """(s_c,) of each device's weight: r_i, or its square where it adds noise of its own."""
        assert self.eases is not None, "some device asks for an epsilon of its own"
        return self.eases if self.adds_noise != "device" or self.shares_noise else self.eases**2


_but_names = attrgetter(*(each.name for each in fields(SubnetFacts) if each.name not in ("name", "access_points")))
