"""What comes of a planned interval: what observers receive, the noise on it, and what a schedule may learn."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from h2fdp.privacy import AdaptiveClipping, Mechanism, PlannedUpload, Release, TierVector, TrustModel
from h2fdp.privacy.ledger_rows import under
from h2fdp.privacy.releases import Adjacency, AlikeReleases
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Arrivals, Plan
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tree_plan import UpperVector, UpperVectors
from h2fdp.schedules.device_estimates import DEVICE_NUMBERS, EDGE_NUMBERS, SubnetMeasurements
from h2fdp.schedules.schedule import IntervalObservation, Measurements


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
        return {"rows": part.rows, "steps": part.steps, "weights": part.reach, **public}

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


def average_alone(facts: Mapping[str, SubnetFacts]) -> bool:
    """Whether the public's account is of the global average alone: the cloud adds the noise, or holds a secure sum.

    Elsewhere it covers what each of the cloud's children uploads.
    """
    return any(each.cloud_sums or each.trust_model.cloud_adds_noise for each in facts.values())


def observation(
    plan: IntervalPlan,
    model: Tensor,
    uploads: list[Tensor],
    facts: Mapping[str, SubnetFacts],
    measured: Mapping[str, SubnetMeasurements] | None,
    noise: Mechanism | None,
) -> IntervalObservation:
    """What a schedule may know of an interval that began at `model` (M,).

    Args:
        uploads: (M,) of the cloud's children, or one, their average, where `average_alone`.
    """
    variances, steps = _noise_and_steps(plan, facts, noise)
    shares = plan.shares if plan.branches is None else plan.branches.shares
    if uploads and average_alone(facts):
        variance, gradients = noise_and_gradients(plan, facts, noise)
        variances, steps, shares = np.array([variance]), np.array([gradients]), np.ones(1)
    return IntervalObservation(
        plan.interval,
        plan.decision.local_steps,
        plan.decision.step_size,
        model,
        uploads,
        shares,
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
    found: dict[Hashable, tuple[float, float]] = {}  # subnets that look alike have the same `Plan`
    likenesses = [(id(subnet), facts[name].likeness) for name, subnet in plan.subnets.items()]
    for (name, subnet), likeness in zip(plan.subnets.items(), likenesses, strict=True):
        if likeness not in found:
            found[likeness] = _noise_variance(noise, facts[name], plan, name), _mean_steps(subnet)
    return np.array([found[each][0] for each in likenesses]), np.array([found[each][1] for each in likenesses])


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


@dataclass(frozen=True)
class PlannedNoise:
    """What the plans of a network say about its noise.

    Attributes:
        facts: the subnets by name.
        noise: None where none is added.
        adjacency: what the ledger's sensitivities are about.
        adaptive: how the clip norm moves; None where it does not.
        clip_norm: of the interval at hand, where it moves.
    """

    facts: Mapping[str, SubnetFacts]
    noise: Mechanism | None
    adjacency: Adjacency
    adaptive: AdaptiveClipping | None
    clip_norm: float | None

    def variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of the noise on each coordinate of a subnet's averages."""
        subnet = plan.subnets[name]
        if self.noise is None:
            return np.zeros(len(subnet.segments))
        uploads = [each for each in uploads_of(self.facts[name], plan, subnet, 1.0) if each.kind != "estimate"]
        return np.array([self.noise.upload_variance(each) for each in uploads])

    def hidden_variances(self, plan: IntervalPlan, name: str) -> np.ndarray:
        """(segments,) of what of that noise colluding devices do not tell."""
        facts, subnet = self.facts[name], plan.subnets[name]
        if facts.visible == "each":  # no upload hides another one
            return np.zeros(len(subnet.segments))
        if facts.trust_model.colluding == 0:
            return self.variances(plan, name)
        shares = [
            facts.trust_model.noise_parts(subnet.accounted_noise(segment), subnet.aggregation(segment).weights)
            for segment in range(len(subnet.segments))
        ]
        return np.array([facts.trust_model.hidden_variance(each) if each.size else 0.0 for each in shares])

    def summed(self, plan: IntervalPlan) -> dict[str, dict[int, tuple[TierVector, ...]]]:
        """The cloud's secure sum above each subnet's last average, in a network of one tier."""
        averaged = [
            (share, UpperVector(float(self.hidden_variances(plan, name)[-1]), 0.0, {name: 0.0}, {name: 1.0}))
            for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
            if subnet.aggregation(-1).rows.size
        ]
        vectors = UpperVectors()
        vectors.averaged(averaged, 0.0, -1)
        return {name: {len(plan.subnets[name].segments) - 1: above[-1]} for name, above in vectors.of_subnets.items()}

    def of_cloud(self, plan: IntervalPlan) -> float:
        """The standard deviation of what the cloud adds to the average, for the devices really in it."""
        if self.noise is None:
            return 0.0
        parts = zip(plan.subnets.values(), plan.weights.tolist(), strict=True)
        averaged = [share * subnet.aggregation(-1).weights for subnet, share in parts]
        return self.noise.of_cloud(averaged) * plan.decision.noise_factor

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows.

        Subnets that look alike have the same ones, but for the name: they are worked out for the first of these.
        """
        if self.noise is None:
            return
        found = {name: alike for alike in self.alike(plan) for name in alike.edges}
        for name in plan.subnets:
            first, releases = found[name].edges[0], found[name].releases
            yield from releases if name == first else (replace(release, edge=name) for release in releases)

    def alike(self, plan: IntervalPlan) -> Iterator[AlikeReleases]:
        """The same, once for all subnets that look alike."""
        if self.noise is None:
            return
        shares = dict(zip(plan.subnets, plan.weights.tolist(), strict=True))
        found: dict[Hashable, list[str]] = {}
        for name, likeness in self._likenesses(plan).items():
            found.setdefault(likeness, []).append(name)
        for names in found.values():
            yield AlikeReleases(names, list(self._of_subnet(plan, names[0], shares[names[0]])))

    def _likenesses(self, plan: IntervalPlan) -> dict[str, Hashable]:
        """What the releases of each subnet depend on except its name; those that look alike have the same `Plan`."""
        return {
            name: (id(subnet), self.facts[name].likeness, share, tuple(plan.vectors.get(name, {}).items()))
            for (name, subnet), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True)
        }

    def _of_subnet(self, plan: IntervalPlan, name: str, share: float) -> Iterator[Release]:
        facts, subnet = self.facts[name], plan.subnets[name]
        assert self.noise is not None, "there is nothing to release under no noise"
        for upload in uploads_of(facts, plan, subnet, share):
            made = under(self.adjacency, self.noise.releases(upload))
            yield from made if self.adaptive is None else map(self._with_votes, made)

    def _with_votes(self, release: Release) -> Release:
        """The same, saying that votes about a clip norm are part of it."""
        assert self.adaptive is not None, "votes are about a clip norm that moves"
        return replace(release, clip_norm=self.clip_norm, vote_share=self.adaptive.share)
