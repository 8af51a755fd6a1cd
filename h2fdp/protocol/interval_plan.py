"""One interval as the cloud sees it: what it knows of each subnet, its plan, and what every observer will receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor

from h2fdp.estimation import IntervalObservation, Measurements
from h2fdp.estimation.device_estimates import DEVICE_NUMBERS, EDGE_NUMBERS, SubnetMeasurements
from h2fdp.privacy import (
    AggregationKind,
    Mechanism,
    Observer,
    PlannedUpload,
    Sampling,
    Tier,
    TierVector,
    TrustModel,
    views,
)
from h2fdp.protocol.messages import Arrivals, Plan
from h2fdp.protocol.tiers import TierPlan
from h2fdp.schedules import Decision
from h2fdp.training.epochs import steps_per_epoch
from h2fdp.world import Points

Weighting = Literal["uniform", "by-size"]


@dataclass(frozen=True)
class SubnetFacts:
    """What is public about a subnet: the cloud plans with it.

    Attributes:
        trust_model: who adds noise in it, and what its edge server sees.
        records: (s_c,) D_i.
        sampling_rates: (s_c,) q_i.
        sampling: how batches are drawn.
        edge_is_cloud: the edge server is the cloud's own (a star).
        access_points: what its devices' messages go through: the edge server itself, unless these say otherwise.
        heights: of the aggregators above the devices, from the edge server up to the one below the cloud.
        depth: tiers of aggregators in the whole network.
        trusted: how many of these aggregators, from the edge server on, form the trusted chain; 0 where trust does not
            matter.
        company: devices below the highest of them, which see its broadcasts; None: those of the subnet.
        sums: places in `heights`, from 1 on, of aggregators that hold secure sums of what their children send.
        cloud_sums: whether the cloud holds one.
        network: devices of the whole network: all receive the models of a cloud that does.
    """

    name: str
    trust_model: TrustModel
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    edge_is_cloud: bool = False
    access_points: Points = ()
    heights: tuple[int, ...] = (1,)
    depth: int = 1
    trusted: int = 0
    company: int | None = None
    sums: frozenset[int] = frozenset()
    cloud_sums: bool = False
    network: int = 0

    def passed(self, height: int) -> int:
        """How many aggregators above the devices average what an aggregation of this height, or the cloud's, is of."""
        return sum(each <= height for each in self.heights)

    def tier(self, height: int) -> Tier:
        """That of the local aggregation that this subnet has where aggregations are of this height."""
        place = self.passed(height)
        return self.heights[place - 1], (*self.heights, self.depth + 1)[place]

    def views(self, passed: int, cloud_sums: bool = False) -> dict[Observer, int]:
        """Who sees what of an upload that this number of aggregators average.

        Args:
            cloud_sums: the aggregation is a secure sum of the cloud's.
        """
        trusted = max(self.trusted, 1) if self.trust_model.edge_adds_noise else 0
        return views(
            self.trust_model, self.heights, trusted, passed, self.edge_is_cloud, self.sums, cloud_sums=cloud_sums
        )

    @property
    def sees_sums(self) -> bool:
        """Whether anybody above its devices is assumed to see sums alone."""
        return self.trust_model.edge_sees == "sum" or bool(self.sums) or self.cloud_sums

    @property
    def points(self) -> Points:
        """Access points and the number of devices of each."""
        return self.access_points or ((self.name, len(self.records)),)

    @property
    def steps_per_epoch(self) -> np.ndarray:
        """(s_c,) batches in which a device goes through its records once."""
        return steps_per_epoch(self.records, self.sampling_rates)

    def shares(self, rows: np.ndarray, weighting: Weighting) -> np.ndarray:
        """rho_j of these devices: equal, or proportional to D_j; they sum to 1."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        return np.asarray(counts / counts.sum())


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
        vectors: subnet -> segment -> the vectors above its average, in a network of more tiers.
        heights: (segments,) of the aggregation that ends each segment, the cloud's being the largest.
        lost: those whose devices all dropped out before an upload; they cost energy and give nothing.
        noise_std: of the cloud's own noise on the average of the uploads; 0 for none.
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
    vectors: Mapping[str, Mapping[int, tuple[TierVector, ...]]] = field(default_factory=dict)
    heights: tuple[int, ...] = ()

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


def numbers_released(trust_model: TrustModel) -> int:
    """How many estimates a device, or the edge server that adds the noise in its place, releases."""
    return DEVICE_NUMBERS if trust_model.devices_add_noise else EDGE_NUMBERS


def uploads_of(facts: SubnetFacts, plan: IntervalPlan, subnet: Plan, share: float) -> Iterator[PlannedUpload]:
    """The uploads of a subnet in one interval: at each aggregation, and estimates for the controller after the last.

    Args:
        share: weight of the subnet in the global average.
    """
    of_subnet = partial(
        PlannedUpload,
        interval=plan.interval + 1,
        edge=facts.name,
        trust_model=facts.trust_model,
        step_size=subnet.step_size,
        share=share,
        cloud_noise_std=plan.noise_std,
        size=facts.network if facts.cloud_sums else facts.company or len(facts.records),
        sampling=facts.sampling,
    )
    heights = plan.heights or (*(1 for _ in subnet.segments[:-1]), 2)
    seen_by = {passed: facts.views(passed) for passed in {1, *map(facts.passed, heights)}}
    above = plan.vectors.get(facts.name, {})

    def of(part: Arrivals) -> dict[str, Any]:
        public = {"sampling_rates": facts.sampling_rates[part.rows], "records": facts.records[part.rows]}
        return {"rows": part.rows, "steps": part.steps, "weights": part.weights, **public}

    start = subnet.first_slot
    for segment, end in enumerate(subnet.ends()):
        part = subnet.aggregation(segment)
        kind = subnet.kind(segment)
        passed, summed = facts.passed(heights[segment]), facts.cloud_sums and kind == "global"
        views_of = facts.views(passed, cloud_sums=True) if summed else seen_by[passed]
        seen: dict[str, Any] = {"views": views_of, "tiers": above.get(segment, ())}
        if part.rows.size:
            seen["rounding"] = subnet.rounding(segment)
        noise = subnet.accounted_noise(segment)
        yield of_subnet(first_slot=start, slot=end, kind=kind, noise_std=noise, **seen, **of(part))
        start = end
    if subnet.estimate_noise is not None and subnet.estimate_noise.size:
        last = subnet.last_slot
        yield of_subnet(
            first_slot=last,
            slot=last,
            kind="estimate",
            noise_std=subnet.estimate_noise,
            numbers=numbers_released(facts.trust_model),
            views=seen_by[1],
            **of(subnet.aggregation(-1)),
        )


def observation(
    plan: IntervalPlan,
    model: Tensor,
    uploads: list[Tensor],
    facts: Mapping[str, SubnetFacts],
    measured: Mapping[str, SubnetMeasurements] | None,
    noise: Mechanism | None,
) -> IntervalObservation:
    """What the cloud saw of an interval that began at `model` (M,), for a schedule that learns."""
    variances, steps = _noise_and_steps(plan, facts, noise)
    return IntervalObservation(
        plan.interval,
        plan.decision.local_steps,
        plan.decision.step_size,
        model,
        uploads,
        plan.shares if plan.branches is None else plan.branches.shares,
        variances,
        steps,
        _measurements(plan, measured) if measured else None,
    )


def noise_and_gradients(
    plan: IntervalPlan, facts: Mapping[str, SubnetFacts], noise: Mechanism | None
) -> tuple[float, float]:
    """Variance of all noise on each coordinate of the global average, and the mean number of gradients in it."""
    variances, steps = _noise_and_steps(plan, facts, noise)
    weights = plan.branch_weights
    return float(weights**2 @ variances) + plan.noise_std**2, float(weights @ steps)


def _noise_and_steps(
    plan: IntervalPlan, facts: Mapping[str, SubnetFacts], noise: Mechanism | None
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) of the uploads of the cloud's children: variance of their noise, and gradients that they accumulate."""
    if plan.branches is not None:
        return plan.branches.noise_variance, plan.branches.mean_steps
    variances = np.array([_noise_variance(noise, facts[name], plan, name) for name in plan.subnets])
    return variances, np.array([_mean_steps(subnet) for subnet in plan.subnets.values()])


def _noise_variance(noise: Mechanism | None, facts: SubnetFacts, plan: IntervalPlan, edge: str) -> float:
    """Of each coordinate of the subnet's own average: its own noise and those of the interval's local aggregations."""
    if noise is None:
        return 0.0
    uploads = uploads_of(facts, plan, plan.subnets[edge], share=1.0)
    return sum(noise.upload_variance(upload) for upload in uploads if upload.kind != "estimate")


def _mean_steps(subnet: Plan) -> float:
    """How many gradients the upload accumulates: of each aggregation the weighted sum over its devices."""
    if subnet.completed is None and subnet.weights is None:
        return float(sum(subnet.segments))
    parts = [subnet.aggregation(segment) for segment in range(len(subnet.segments))]
    return sum(float(part.weights @ part.steps) for part in parts)


def _measurements(plan: IntervalPlan, measured: Mapping[str, SubnetMeasurements]) -> Measurements:
    """Those of the subnets that had devices left at the end of the interval."""
    found = [measured[name] for name in plan.subnets if name in measured]
    mass = plan.shares[[name in measured for name in plan.subnets]]
    gradients = [each.gradient for each in found if each.gradient is not None]
    return Measurements(
        np.stack([each.values for each in found]),
        np.stack([each.noise_std for each in found]),
        np.stack([gradient.cpu().numpy() for gradient in gradients]) if gradients else None,
        mass / mass.sum(),
    )
