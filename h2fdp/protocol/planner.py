"""Turns a decision into the plan of an interval: participants, faults, and the noise at each node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy import (
    AdaptiveClipping,
    Mechanism,
    ModularCode,
    NoiseRequest,
    Release,
    SecureSum,
    TrustModel,
    code_for,
)
from h2fdp.privacy.adjacency import Adjacency
from h2fdp.privacy.releases import AlikeReleases
from h2fdp.protocol.arrivals import CompletedWork, Faults, completed_epochs, completed_work, reached
from h2fdp.protocol.averaging import Averaging, Branch, SubnetAverages
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.planned_noise import PlannedNoise
from h2fdp.protocol.planned_uploads import numbers_released
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tree_plan import TierFacts, TreePlanner, weights_below
from h2fdp.schedules import AggregationTimes, Decision, draw_participants
from h2fdp.streams import Streams

_WHOLE = 1e-9  # of a grid cell: a noise of so many whole cells stays what it is


def bits_of(trust_model: TrustModel) -> int | None:
    """Of the integers that stand for the numbers of vectors; None where vectors are sent as they are."""
    return trust_model.rounding if isinstance(trust_model, SecureSum) else None


def coded(
    bits: int, parameters: int, subnet: str, lengths: Sequence[float], shares: np.ndarray, noise_std: np.ndarray
) -> tuple[tuple[ModularCode, ...], np.ndarray]:
    """How integers stand for vectors in each sum of a subnet, and its noises (segments, s) in whole cells of these.

    Args:
        parameters: M, of the vectors.
        lengths: of each segment, of the longest update of a device.
        shares: (s,) of the devices in the subnet's average.
        noise_std: (segments, s) of what devices add.

    Raises:
        UserError: too few bits for this noise.
    """
    codes, levels = [], []
    for length, level in zip(lengths, noise_std, strict=True):
        code = code_for(bits, parameters, subnet, length, level * shares)
        if code is None:
            text = f"{bits} bits are too few for the noise and the updates of {subnet}"
            raise UserError(f"{text}; expected more", key="method.privacy.secure_sum.rounding")
        codes.append(code)
        levels.append(np.ceil(level * shares / code.spacing - _WHOLE) * code.spacing / shares)
    return tuple(codes), np.stack(levels)


def opened(
    trust_model: TrustModel, started: int, segments: Sequence[int], completed: CompletedWork | None
) -> CompletedWork | None:
    """What the devices' work comes to where a sum of too few uploads is never opened."""
    if completed is None:
        if trust_model.opens(started, started):
            return None
        steps = np.repeat(np.array(segments)[:, None], started, axis=1)
        completed = CompletedWork(steps, np.zeros(started, dtype=np.int64))
    arrived = (completed.steps > 0).sum(axis=1)
    are_opened = np.array([each == 0 or trust_model.opens(started, each) for each in arrived.tolist()])
    return completed if are_opened.all() else completed.opening(are_opened)


class _Planned(NamedTuple):
    """What is planned of a subnet: its interval, the weights in it, and what it uploads in the end."""

    plan: Plan
    averages: SubnetAverages
    branch: Branch


@dataclass(frozen=True)
class Planner:
    """Draws what an interval draws, and works out its noises for those who are really averaged.

    Attributes:
        aggregation_times: when edge servers aggregate within an interval.
        noise: None where none is added.
        averaging: with which weights every aggregator adds up what its children upload.
        faults: that subnets and devices meet.
        epochs: local epochs of a device; None where it takes the decision's local steps.
        measures: whether devices measure what the controller wants to know of the losses.
        leaks: whether these measurements go up raw.
        world: the streams of what the simulated world does, its faults; None for those of the run.
        tiers: the aggregators between the cloud and the edge servers, by name; none in a network of one tier.
        children: the cloud's children, in the order of the tree, where there are any of these.
        parameters: M, of the vectors that devices upload.
        longest: from the step size and a number of steps to the longest update of a device; None where none is known.
        adjacency: what the ledger's sensitivities are about.
        adaptive: how the clip norm moves; None where it does not.
        clip_norm: of the interval at hand, where it moves; noises and sensitivities are those of this norm.
    """

    streams: Streams
    subnets: tuple[SubnetFacts, ...]
    aggregation_times: AggregationTimes
    noise: Mechanism | None
    averaging: Averaging
    faults: Faults = Faults()  # noqa: RUF009 - a frozen value
    epochs: int | None = None
    measures: bool = False
    leaks: bool = False
    world: Streams | None = None
    tiers: Mapping[str, TierFacts] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    parameters: int = 0
    longest: Callable[[float, int], float] | None = None
    adjacency: Adjacency = "null-record"
    adaptive: AdaptiveClipping | None = None
    clip_norm: float | None = None

    def at(self, clip_norm: float | None) -> Planner:
        """The planner of an interval with this clip norm; None where it does not move."""
        if self.adaptive is None or clip_norm is None:
            assert self.adaptive is None, "an interval has the clip norm that moves"
            assert clip_norm is None, "no clip norm moves"
            return self
        assert self.noise is not None, "a clip norm moves by noisy votes"
        return replace(self, clip_norm=clip_norm, noise=self.noise.clipped_to(self.adaptive.length(clip_norm)))

    @cached_property
    def facts(self) -> Mapping[str, SubnetFacts]:
        """The subnets by name."""
        return {subnet.name: subnet for subnet in self.subnets}

    @cached_property
    def noises(self) -> PlannedNoise:
        """What plans say about noise."""
        return PlannedNoise(self.facts, self.noise, self.adjacency, self.adaptive, self.clip_norm)

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows."""
        return self.noises.releases(plan)

    def alike_releases(self, plan: IntervalPlan) -> Iterator[AlikeReleases]:
        """The same, once for all subnets that look alike."""
        return self.noises.alike(plan)

    def plan(self, interval: int, slot: int, decision: Decision) -> IntervalPlan:
        """The plan of interval k, counted from 0, which begins at `slot`.

        Subnets that look alike, and meet no faults, share one `Plan`.
        """
        planned: dict[str, _Planned] = {}
        lost: dict[str, Plan] = {}
        alike: dict[Hashable, _Planned] = {}
        for place, (facts, count) in enumerate(zip(self.subnets, decision.participation.tolist(), strict=True)):
            if count == 0:  # a subnet without active devices contributes nothing; the others' weights renormalise
                continue
            if decision.devices is None:
                rows = draw_participants(self.streams.public, facts.name, interval, len(facts.records), count)
            else:
                rows = decision.devices[place]
            rows = reached(self.faults, self.world or self.streams, facts.points, interval, rows)
            if rows.size == 0:
                continue
            segments = self.aggregation_times.of(facts.name).segments(decision.local_steps)
            completed = self._completed(facts, interval, segments, rows)
            if completed is not None or bits_of(facts.trust_model) is not None:
                found = self._subnet_plan(facts, interval, slot, segments, decision, rows, completed)
            else:
                likeness = facts.likeness, segments, rows.tobytes()
                if likeness not in alike:
                    alike[likeness] = self._subnet_plan(facts, interval, slot, segments, decision, rows, None)
                found = alike[likeness]
            if found.plan.arriving.size == 0:
                lost[facts.name] = found.plan
            else:
                planned[facts.name] = found
        subnets = {name: each.plan for name, each in planned.items()}
        averages = {name: each.averages for name, each in planned.items()}
        shares, weights = self.averaging.of_branches([each.branch for each in planned.values()], decision.local_steps)
        plan = IntervalPlan(interval, slot, decision, subnets, shares, weights, lost, clip_norm=self.clip_norm)
        if self.tiers:
            plan = self._with_tiers(plan, averages)
        elif self.cloud_sums:
            plan = replace(plan, vectors=self.noises.summed(plan))
        return replace(plan, noise_std=self.noises.of_cloud(plan))

    @property
    def cloud_sums(self) -> bool:
        """Whether the cloud sees the sum of its children alone."""
        return any(each.cloud_sums for each in self.subnets)

    @property
    def depth(self) -> int:
        """Tiers of aggregators below the cloud."""
        return max(each.depth for each in self.subnets)

    def _with_tiers(self, plan: IntervalPlan, averages: Mapping[str, SubnetAverages]) -> IntervalPlan:
        """The plan with those of the aggregators above edge servers."""
        heights = self.aggregation_times.heights(plan.decision.local_steps, self.depth)
        planner = TreePlanner(
            tiers=self.tiers,
            facts=self.facts,
            averaging=self.averaging,
            averages=averages,
            noise=self.noise,
            noise_factor=plan.decision.noise_factor,
            heights=heights,
            subnets=plan.subnets,
            noise_variances={name: self.noises.variances(plan, name) for name in plan.subnets},
            hidden_variances={name: self.noises.hidden_variances(plan, name) for name in plan.subnets},
            cloud_sums=self.cloud_sums,
        )
        branches, shares = planner.root(self.children), planner.shares(self.children)
        weights = weights_below(branches.parts, branches.weights)
        return replace(
            plan,
            branches=branches,
            shares=np.array([shares[name] for name in plan.subnets]),
            weights=np.array([weights.get(name, 0.0) for name in plan.subnets]),
            vectors=planner.vectors.of_subnets,
            heights=heights,
        )

    def _completed(
        self, facts: SubnetFacts, interval: int, segments: tuple[int, ...], rows: np.ndarray
    ) -> CompletedWork | None:
        """What these devices do; None where all do what was planned."""
        known = self.faults, self.world or self.streams, facts.points, interval, rows
        if self.epochs is None:
            completed = completed_work(*known, segments)
        else:
            completed = completed_epochs(*known, self.epochs, facts.steps_per_epoch[rows])
        return opened(facts.trust_model, len(rows), segments, completed)

    def _subnet_plan(
        self,
        facts: SubnetFacts,
        interval: int,
        slot: int,
        segments: tuple[int, ...],
        decision: Decision,
        rows: np.ndarray,
        completed: CompletedWork | None,
    ) -> _Planned:
        step_size = decision.step_size
        averages = self.averaging.of_subnet(facts, rows, segments, step_size, completed, self.noise)
        noise_std = np.empty((len(segments), 0))
        heights = self.aggregation_times.heights(sum(segments), facts.depth) if self.tiers else ()
        if self.noise is not None:
            public = facts.sampling_rates[rows], facts.records[rows]
            tiers = [facts.tier(height) for height in heights[:-1]]
            weighed = averages.weights, averages.portions
            if facts.trust_model.shares_noise:  # added before it is known who drops out
                weighed = facts.shares(rows, self.averaging.weighting), None
            averaged = weighed[0], *public, tiers, weighed[1]
            asked = NoiseRequest(facts.trust_model, segments, step_size, *averaged)
            noise_std = self.noise.of_subnet(asked) * decision.noise_factor
            if facts.trust_model.edge_adds_noise and facts.trusted > 1:  # the chain continues: a node above adds it
                noise_std = noise_std * np.array([[facts.passed(height) == 1] for height in heights])
        shares = facts.shares(rows, self.averaging.weighting)
        codes: tuple[ModularCode, ...] = ()
        if (bits := bits_of(facts.trust_model)) is not None and self.noise is not None:
            assert self.longest is not None, "integers stand for vectors of bounded length"
            lengths = [self.longest(step_size, steps) for steps in segments]
            codes, noise_std = coded(bits, self.parameters, facts.name, lengths, shares, noise_std)
        part = Plan(
            interval=interval,
            first_slot=slot,
            segments=segments,
            step_size=step_size,
            rows=rows,
            shares=shares,
            noise_std=noise_std,
            weights=None if averages.plain else averages.weights,
            completed=completed,
            heights=(*(facts.tier(height)[0] for height in heights[:-1]), 0) if self.tiers else None,
            masked=facts.trust_model.shares_noise,
            codes=codes,
            clip_norm=self.clip_norm,
        )
        measuring = part.aggregation(-1).rows
        if self.measures and measuring.size:
            noise = np.empty(0) if self.leaks else self._noise_on_estimates(facts, measuring)
            part = replace(part, estimate_noise=noise)
        return _Planned(part, averages, averages.branch(facts, part))

    def _noise_on_estimates(self, facts: SubnetFacts, rows: np.ndarray) -> np.ndarray:
        assert self.noise is not None, "private estimates come with a method that adds noise"
        numbers = numbers_released(facts.trust_model)
        return self.noise.of_estimates(facts.trust_model, numbers, facts.sampling_rates[rows])
