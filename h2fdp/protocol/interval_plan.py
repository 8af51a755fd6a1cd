"""One interval of the whole network as the cloud plans it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from h2fdp.privacy import AggregationKind, Merged
from h2fdp.privacy.correlated import StreamPast
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.tiers import TierPlan
from h2fdp.schedules import Decision


@dataclass(frozen=True, kw_only=True)
class BranchPlans:
    """What the cloud's children do in an interval.

    Attributes:
        parts: name -> plan, of those of which anything arrives.
        shares: (n,) summing to 1.
        weights: (n,) in the cloud's average.
        noise_variance: (n,) of each coordinate of an upload, of all noise that it accumulates.
        mean_steps: (n,) gradients that an upload accumulates.
    """

    parts: dict[str, Plan | TierPlan]
    shares: np.ndarray
    weights: np.ndarray
    noise_variance: np.ndarray
    mean_steps: np.ndarray


@dataclass(frozen=True)
class IntervalPlan:
    """One interval of the whole network, in the order of the tree.

    Attributes:
        subnets: those that upload anything.
        shares: their varrho_c, by the devices of which anything arrives, summing to 1.
        weights: of their own averages in the global one.
        branches: the cloud's children with their own plans, weights and noises; the subnets themselves in a network of
            one tier, where this is None.
        vectors: subnet -> segment -> the vectors above its average, in a network of more tiers or where the
            cloud sees a secure sum; empty elsewhere.
        heights: (segments,) of the aggregation that ends each segment, the cloud's being the largest.
        lost: those whose devices all dropped out before an upload; they cost energy and give nothing.
        noise_std: of the cloud's own noise on the average of the uploads; 0 for none.
        clip_norm: C of this interval, where it moves.
        past: what noise streams covered before the interval, by edge server, where noises are correlated.
        charged: what the interval's rows in the ledger are about instead of its own uploads, see `Arrivals`; None: its
            own.
    """

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, Plan]
    shares: np.ndarray
    weights: np.ndarray
    lost: dict[str, Plan] = field(default_factory=dict)
    noise_std: float = 0.0
    branches: BranchPlans | None = None
    vectors: Mapping[str, Mapping[int, tuple[Merged, ...]]] = field(default_factory=dict)
    heights: tuple[int, ...] = ()
    clip_norm: float | None = None
    charged: tuple[IntervalPlan, ...] | None = None
    past: Mapping[str, StreamPast] = field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, Plan | TierPlan]:
        """What each of the cloud's children is to do."""
        return self.subnets if self.branches is None else self.branches.parts

    @property
    def branch_weights(self) -> np.ndarray:
        """(n,) of the cloud's children in its average."""
        return self.weights if self.branches is None else self.branches.weights

    @property
    def upper_noises(self) -> Iterator[tuple[str, AggregationKind, float]]:
        """Aggregator, kind of aggregation and level of every noise that is added above edge servers."""
        for name, part in self.parts.items():
            if isinstance(part, TierPlan):
                yield from part.noises(name)

    @property
    def participants(self) -> int:
        """Devices of which anything arrives."""
        return sum(len(plan.arriving) for plan in self.subnets.values())

    @property
    def device_steps(self) -> int:
        """Local steps of all devices, done in vain or not."""
        return sum(int(plan.steps_computed.sum()) for plan in (*self.subnets.values(), *self.lost.values()))

    @property
    def last_slot(self) -> int:
        """t_{k+1}."""
        return self.first_slot + self.decision.local_steps
