"""Derives the plans of higher aggregators from those of subnets: weights, noise, and what observers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from h2fdp.privacy import Merged, Place, Span, Tier
from h2fdp.privacy.places import Holder, Segment
from h2fdp.privacy.views import Vector, merged
from h2fdp.protocol.averaging import Averaging, Branch
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.planned_releases import PlannedNoise
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tiers import Part, TierPhase


@dataclass(frozen=True, kw_only=True)
class TierFacts:
    """Public facts about an aggregator above edge servers.

    Attributes:
        children: names of the aggregators below, in the order of the tree.
        height, height_above: its own, and that of the node above it.
        guarded: the children whose trusted chain includes this node.
        ends_chain: whether the node above does not belong to it.
        replaced: what it sends up may be anything, so that nothing in it hides anything else.
    """

    name: str
    children: tuple[str, ...]
    height: int
    height_above: int
    guarded: frozenset[str]
    ends_chain: bool
    replaced: bool = False

    @property
    def tier(self) -> Tier:
        """The tier of the local aggregations that it makes."""
        return self.height, self.height_above


@dataclass
class TreePlanner:
    """Plans the aggregators above the subnets of one interval.

    Attributes:
        tiers: the aggregators above edge servers, by name.
        noises: of the network's plans.
        plan: of the interval, which has the subnets of which anything arrives, and heights: at the end of a segment the
            highest node up to its height aggregates, everywhere.
        vectors: subnet -> segment -> the averages above its own, from the lowest on; filled as the tree is planned.
    """

    tiers: Mapping[str, TierFacts]
    averaging: Averaging
    noises: PlannedNoise
    plan: IntervalPlan
    vectors: dict[str, dict[int, tuple[Merged, ...]]] = field(default_factory=dict)

    @cached_property
    def _variances(self) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """(segments,) for each subnet, of the noise on its averages, and of what colluding devices do not reveal."""
        noises, plan = self.noises, self.plan
        return {name: (noises.variances(plan, name), noises.hidden_variances(plan, name)) for name in plan.subnets}

    def root(self, children: Sequence[str]) -> dict[str, Branch]:
        """The cloud's children of which anything arrives."""
        whole = {name: self._part(name, 0, len(self.plan.heights)) for name in children}
        present = {name: plan for name, plan in whole.items() if plan is not None}
        raw = [each.last.exposure for each in present.values() if each.last is not None]
        assert not any(raw), "the cloud sees no raw update"
        shares, weights = self._weights(present, 0, len(self.plan.heights))
        if any(facts.cloud_sums for facts in self.noises.facts.values()):
            last = zip(weights.tolist(), (each.last for each in present.values()), strict=True)
            fresh = [(share, vector) for share, vector in last if vector is not None]
            self._noted(merged(fresh, 0.0, 0.0), len(self.plan.heights) - 1)
        of_children = zip(present.items(), shares.tolist(), weights.tolist(), strict=True)
        return {name: replace(each, share=share, weight=weight) for (name, each), share, weight in of_children}

    def shares(self, children: Sequence[str]) -> dict[str, float]:
        """Each subnet's share in the cloud's average, by all devices that arrive in the interval; they sum to 1."""
        masses = {name: mass for name in children if (mass := self._mass(name)) > 0}
        total = sum(masses.values())
        by_subnet: dict[str, float] = {}
        for name, mass in masses.items():
            below = self.shares(self.tiers[name].children) if name in self.tiers else {name: 1.0}
            by_subnet |= {subnet: mass / total * share for subnet, share in below.items()}
        return by_subnet

    def _part(self, name: str, first: int, stop: int) -> Branch | None:
        """A node's part in the segments first .. stop - 1; None where nothing arrives."""
        return self._of_tier(name, first, stop) if name in self.tiers else self._of_subnet(name, first, stop)

    def _of_subnet(self, name: str, first: int, stop: int) -> Branch | None:
        if name not in self.plan.subnets:
            return None
        facts, whole = self.noises.facts[name], self.plan.subnets[name]
        plan = whole.part(first, stop)
        if plan.tasks.arriving.size == 0:
            return None
        last, variances = plan.aggregation(-1), self._variances[name][0][first:stop]
        vector = None
        if last.rows.size:
            raw = facts.adds_noise == "edge" and not last.levels[0]
            at = stop - 1
            exposure = whole.exposure(at, self._exposures(facts, whole.rows, at)) if raw else 0.0
            vector = Vector(float(self._variances[name][1][at]), exposure, {name: (1.0, 0.0)})
        return replace(self.averaging.branch(facts, plan), last=vector, noise_variance=float(variances.sum()))

    def _exposures(self, facts: SubnetFacts, rows: np.ndarray, segment: int) -> np.ndarray:
        """(s,) of raw updates of these devices, see `Mechanism.exposures`."""
        assert self.noises.noise is not None, "where nothing is promised nothing counts as raw"
        assert facts.place is not None, "raw updates get noise"
        span = self._span(facts.place, None, segment)
        return facts.asked(self.noises.noise.exposures(span, facts.sampling_rates[rows], facts.records[rows]), rows)

    def _span(self, place: Place, tier: Tier | None, segment: int) -> Span:
        return Span(place, tier, self._at[segment], self.plan.decision.local_steps)

    @property
    def _at(self) -> tuple[Segment, ...]:
        """The segments, which are those of all subnets."""
        return next(iter(self.plan.subnets.values())).at

    def _of_tier(self, name: str, first: int, stop: int) -> Branch | None:
        facts = self.tiers[name]
        phases: list[TierPhase] = []
        variance = steps = gradients = 0.0
        last: Vector | None = None
        for begin, end in self._stages(facts, first, stop):
            present = {child: part for child in facts.children if (part := self._part(child, begin, end)) is not None}
            last = None
            if not present:
                continue
            weights, own = self._weights(present, begin, end)[1], self._ends_here(facts, end - 1)
            last, level = self._averaged(facts, present, weights, end - 1, own)
            phases.append(self._phase(present, weights, end - 1, own, level))
            variance += level**2
            for share, child in zip(weights.tolist(), present.values(), strict=True):
                variance += share**2 * child.noise_variance
                steps += share * child.steps
                gradients += share * child.gradients
        if not phases:
            return None
        records, devices, mass = self._arriving(name, first, stop)
        return Branch(
            part=tuple(phases),
            records=records,
            devices=devices,
            steps=steps,
            gradients=gradients,
            last=last,
            noise_variance=variance,
            mass=mass,
        )

    def _arriving(self, name: str, first: int, stop: int) -> tuple[float, int, float]:
        """Records and number of the devices below a node of which anything arrives, and its mass: 1, or the records,
        times what is left where devices ask for an epsilon of their own; 0 where no device arrives."""
        if name in self.tiers:
            facts, found = self.tiers[name], [self._arriving(child, first, stop) for child in self.tiers[name].children]
            records, devices, mass = (sum(column) for column in zip(*found, strict=True))
            whole = records
            if self.averaging.weighting == "uniform":  # a node is worth one, whatever is below it
                whole, mass = float(devices > 0), mass / max(1, sum(each[1] > 0 for each in found))
            return records, devices, mass * (mass / whole if whole and facts.guarded and facts.ends_chain else 1.0)
        if name not in self.plan.subnets:
            return 0.0, 0, 0.0
        rows, of_subnet = self.plan.subnets[name].tasks.part(first, stop).arriving, self.noises.facts[name]
        return float(of_subnet.records[rows].sum()), len(rows), of_subnet.mass(rows, self.averaging.weighting)

    def _mass(self, name: str) -> float:
        """The mass by which a node has its share in the whole interval."""
        return self._arriving(name, 0, len(self.plan.heights))[-1]

    def _weights(self, present: Mapping[str, Branch], first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) shares and (n,) weights of these children's uploads of the segments first .. stop - 1."""
        planned = sum(len(each.slots) for each in self._at[first:stop]) if self.plan.subnets else 0
        return self.averaging.of_branches(list(present.values()), planned)

    def _averaged(
        self, facts: TierFacts, present: Mapping[str, Branch], weights: np.ndarray, segment: int, own: bool
    ) -> tuple[Vector | None, float]:
        """The average of what children send of a segment, with the node's own noise, and that noise's level."""
        raw = any(child.last is not None and child.last.exposure > 0 for child in present.values())
        fresh = [
            (share, child.last)
            for share, child in zip(self.averaging.reach(weights, raw, "edge").tolist(), present.values(), strict=True)
            if child.last is not None
        ]
        if not fresh:
            return None, 0.0
        exposure = max(share * vector.exposure for share, vector in fresh)
        assert exposure == 0 or facts.guarded, "a raw update goes up to nodes of its trusted chain only"
        level = 0.0
        if exposure > 0 and (own or facts.ends_chain):
            assert self.noises.noise is not None, "where nothing is promised nothing counts as raw"
            span = self._span(Place(Holder.NODE), facts.tier if own else self._tier_above(facts, segment), segment)
            level = self.noises.noise.unit(span) * exposure * self.plan.decision.noise_factor
            exposure = 0.0
        vector = self._noted(merged(fresh, level, exposure, self._summed), segment)
        return (replace(vector, variance=0.0) if facts.replaced else vector), level

    @cached_property
    def _summed(self) -> bool:
        """Whether the noises of a node's children hide each other."""
        each = ("each" if facts.sealed else facts.visible for facts in self.noises.facts.values())
        return all(seen == "sum" for seen in (self.averaging.above.visible, *each))

    def _noted(self, vector: Vector, segment: int) -> Vector:
        """An average as one above those of the subnets in it."""
        for subnet, view in vector.views():
            of_segments = self.vectors.setdefault(subnet, {})
            of_segments[segment] = (*of_segments.get(segment, ()), view)
        return vector

    def _phase(
        self, present: Mapping[str, Branch], weights: np.ndarray, segment: int, own: bool, level: float
    ) -> TierPhase:
        return TierPhase(
            segment=replace(self._at[segment], own=own),
            noise_std=level,
            parts={name: each.part for name, each in present.items()},
            weights=weights,
        )

    def _stages(self, facts: TierFacts, first: int, stop: int) -> list[tuple[int, int]]:
        """The segments between two aggregations at this node or above it."""
        ends = [at + 1 for at in range(first, stop - 1) if self._ends_here(facts, at)] + [stop]
        return list(zip([first, *ends[:-1]], ends, strict=True))

    def _ends_here(self, facts: TierFacts, segment: int) -> bool:
        """Whether the aggregation of this segment is the node's own."""
        return facts.height <= self.plan.heights[segment] < facts.height_above

    def _tier_above(self, facts: TierFacts, segment: int) -> Tier | None:
        """The tier of an aggregation above; None where it is the cloud's."""
        if segment == len(self.plan.heights) - 1:
            return None
        above = next(each for each in self.tiers.values() if facts.name in each.children)
        return above.tier if self._ends_here(above, segment) else self._tier_above(above, segment)


def weights_below(parts: Mapping[str, Part], weights: np.ndarray) -> dict[str, float]:
    """Each subnet's weight in the average of these nodes: the product along its way, in the last stage of each."""
    by_subnet: dict[str, float] = {}
    for (name, part), weight in zip(parts.items(), weights.tolist(), strict=True):
        if isinstance(part, Plan):
            by_subnet[name] = weight
        else:
            below = weights_below(part[-1].parts, part[-1].weights)
            by_subnet |= {subnet: weight * each for subnet, each in below.items()}
    return by_subnet
