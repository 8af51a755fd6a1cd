"""Turns a decision into the plan of an interval: participants, faults, and the noise at each node."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from h2fdp.costs.batteries import Batteries, Charge
from h2fdp.costs.traffic import Tasks
from h2fdp.network.devices import Membership
from h2fdp.privacy import Mechanism, Pipeline, Span, Tolerance
from h2fdp.privacy.mechanisms.pipeline import PlannedSum
from h2fdp.privacy.places import Segment, StageFacts
from h2fdp.privacy.releases import Adjacency
from h2fdp.privacy.views import Past
from h2fdp.protocol.arrivals import Faults, epochs_under, reachable, tasks_under
from h2fdp.protocol.averaging import Averaging, Branch
from h2fdp.protocol.interval_plan import IntervalPlan
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.planned_releases import PlannedNoise
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tree_plan import TierFacts, TreePlanner, weights_below
from h2fdp.schedules import AggregationTimes, Decision, draw_participants
from h2fdp.schedules.schedule import Arrivals, Backlog
from h2fdp.streams import Streams


def opened(tolerance: Tolerance, tasks: Tasks) -> Tasks:
    """The tasks where a secure sum of too few uploads is never opened."""
    arrived, started = tasks.uploads.sum(axis=1).tolist(), len(tasks.rows)
    are_opened = np.array([each == 0 or tolerance.opens(started, each) for each in arrived])
    return tasks if are_opened.all() else tasks.opening(are_opened)


@dataclass(frozen=True)
class Planner:
    """Draws what an interval draws, and works out its noises for those who are really averaged.

    Attributes:
        aggregation_times: when edge servers aggregate within an interval.
        noise: None where none is added.
        averaging: with which weights every aggregator adds up what its children upload.
        faults: that subnets and devices meet.
        epochs: local epochs of a device; None where it takes the decision's local steps.
        world: the streams of what the simulated world does, its faults; None for those of the run.
        tiers: the aggregators between the cloud and the edge servers, by name; none in a network of one tier.
        children: the cloud's children, in the order of the tree, where there are any of these.
        parameters: M, of the vectors that devices upload.
        adjacency: what the ledger's sensitivities are about.
        membership: which rows are there in which interval, where devices move.
    """

    streams: Streams
    subnets: tuple[SubnetFacts, ...]
    aggregation_times: AggregationTimes
    noise: Mechanism | None
    averaging: Averaging
    faults: Faults = Faults()  # noqa: RUF009 - a frozen value
    epochs: int | None = None
    world: Streams | None = None
    tiers: Mapping[str, TierFacts] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    parameters: int = 0
    adjacency: Adjacency = "null-record"
    membership: Membership | None = None

    def __post_init__(self) -> None:
        """Refuse an aggregation that these subnets' trust does not go with."""
        if self.noise is not None:
            self.averaging.refuse(self.subnets)

    @cached_property
    def facts(self) -> Mapping[str, SubnetFacts]:
        """The subnets by name."""
        return {subnet.name: subnet for subnet in self.subnets}

    @cached_property
    def _firsts(self) -> np.ndarray:
        """(N,) over all rows, the first one of each subnet."""
        sizes = np.array([len(subnet.records) for subnet in self.subnets])
        return np.asarray(np.cumsum(sizes) - sizes)

    @cached_property
    def noises(self) -> PlannedNoise:
        """The noise of plans."""
        return PlannedNoise(self.facts, self.noise, self.adjacency)

    @cached_property
    def begun(self) -> Mapping[str, Past]:
        """The past of each subnet before the run; none where each noise is independent of all others."""
        pasts = ((each.name, each.pipeline.law.begun(len(each.records))) for each in self.subnets)
        return {name: past for name, past in pasts if past is not None}

    @property
    def charge(self) -> Charge | None:
        """The charge of full batteries; None where devices have none."""
        return None if self.faults.batteries is None else self.faults.batteries.full

    def left(self, charge: Charge) -> np.ndarray:
        """(N,) devices of each subnet that are not out of the run."""
        assert self.faults.batteries is not None, "there is a charge"
        return np.add.reduceat(self.faults.batteries.there(charge).astype(np.int64), self._firsts)

    def plan(
        self,
        interval: int,
        slot: int,
        decision: Decision,
        past: Mapping[str, Past] | None = None,
        charge: Charge | None = None,
    ) -> IntervalPlan:
        """The plan of interval k, counted from 0, which begins at `slot`.

        Subnets that look alike, and meet no faults, share one `Plan`.

        Args:
            past: of subnets, so far; None: as it has `begun`.
            charge: of the devices' batteries before it; None where they have none.
        """
        if decision.arrivals is not None:
            return self._buffered_plan(interval, slot, decision, decision.arrivals)
        past = self.begun if past is None else past
        subnets: dict[str, Plan] = {}
        lost: dict[str, Plan] = {}
        alike: dict[Hashable, Plan] = {}
        asked, charge = self._asked(interval, decision, charge)
        for facts, rows in zip(self.subnets, asked, strict=True):
            rows = reachable(self.faults, self.world or self.streams, facts.points, interval, rows)
            if rows.size == 0:  # a subnet without active devices contributes nothing; the others' weights renormalise
                continue
            tasks = self._tasks(facts, interval, decision, rows)
            known = facts, interval, slot, decision, tasks
            before = past.get(facts.name)
            likeness = facts.likeness, tasks.segments, rows.tobytes(), before and before.likeness
            if not tasks.whole or facts.pipeline.has_code:
                part = self._subnet_plan(*known, past=before)
            else:
                if likeness not in alike:
                    alike[likeness] = self._subnet_plan(*known, past=before)
                part = alike[likeness]
            (subnets if part.tasks.arriving.size else lost)[facts.name] = part
        shares, weights = self.averaging.of_branches(self._branches(subnets), decision.local_steps)
        plan = IntervalPlan(interval, slot, decision, subnets, shares, weights, lost, past=past, charge=charge)
        if self.tiers:
            plan = self._with_tiers(plan)
        elif self.cloud_sums:
            plan = replace(plan, vectors=self.noises.summed(plan))
        return replace(plan, noise_std=self.noises.of_cloud(plan))

    def _buffered_plan(self, interval: int, slot: int, decision: Decision, arrivals: Arrivals) -> IntervalPlan:
        """The plan where aggregators do not wait for all.

        Rows are about what is sent to edge servers meanwhile; below a cloud that adds the noise, whose own average is
        the only release, about that.
        """

        def of(backlogs: Mapping[int, Backlog]) -> IntervalPlan:
            numbers = sorted(backlogs)
            known = [(self.subnets[number], backlogs[number]) for number in numbers]
            subnets = {facts.name: self._buffered(facts, interval, decision, backlog) for facts, backlog in known}
            shares, weights = self.averaging.of_branches(self._branches(subnets), decision.local_steps)
            weights = weights * np.array([backlogs[number].weight for number in numbers])
            return IntervalPlan(interval, slot, decision, subnets, shares, weights)

        plan, at_cloud = of(arrivals.backlogs), any(each.adds_noise == "cloud" for each in self.subnets)
        charged = None if at_cloud else tuple(map(of, arrivals.charged))
        return replace(plan, noise_std=self.noises.of_cloud(plan), charged=charged)

    def _buffered(self, facts: SubnetFacts, interval: int, decision: Decision, backlog: Backlog) -> Plan:
        """The plan of a subnet whose edge server does not wait for all; slots are those of its own clock."""
        segments = self.aggregation_times.of(facts.name).segments(decision.local_steps)
        tasks = Tasks.planned(backlog.rows, segments, facts.shares_noise)
        known = facts, interval, backlog.first * segments[0], replace(decision, step_size=backlog.step_size)
        if backlog.in_step:
            return self._subnet_plan(*known, tasks)
        steps = np.where(backlog.arrives, segments[0], 0)
        return self._subnet_plan(*known, replace(tasks, steps=steps, whole=False, there=backlog.arrives), backlog)

    def _there(self, interval: int) -> Sequence[np.ndarray] | None:
        """The devices of each subnet that are with it, and whose channels let them send; None where all are."""
        sends = None if self.faults.sends is None else self.faults.sends(interval)
        there = None if self.membership is None else self.membership.there(interval)
        both = [each for each in (sends, there) if each is not None]
        return np.split(np.logical_and.reduce(both), self._firsts[1:]) if both else None

    def _asked(
        self, interval: int, decision: Decision, charge: Charge | None
    ) -> tuple[list[np.ndarray], Charge | None]:
        """The rows of each subnet that are to take part, and the charge after the interval, where there are batteries.

        Those that are drawn are drawn from all that can pay.
        """
        there, batteries = self._there(interval), self.faults.batteries
        sizes, counts = [len(each.records) for each in self.subnets], decision.participation.tolist()
        able = [np.arange(size) for size in sizes]
        if batteries is not None:
            assert charge is not None, "batteries have a charge"
            left = np.split(batteries.there(charge), self._firsts[1:])
            there = left if there is None else [one & other for one, other in zip(left, there, strict=True)]
            if decision.devices is None and any(0 < count < size for count, size in zip(counts, sizes, strict=True)):
                present = [rows[each] for rows, each in zip(able, there, strict=True)]
                able, then = self._paying(batteries, interval, decision, present, charge)
                charge = replace(charge, gone=then.gone)
        asked = []
        for place, (facts, count) in enumerate(zip(self.subnets, counts, strict=True)):
            if decision.devices is not None:
                rows = decision.devices[place] if count else able[place][:0]
            else:
                known = facts.name, interval, len(able[place]), min(count, len(able[place]))
                rows = able[place][draw_participants(self.streams.public, *known)] if count else able[place][:0]
            asked.append(rows if there is None else rows[there[place][rows]])
        if batteries is None or charge is None:
            return asked, None
        return self._paying(batteries, interval, decision, asked, charge)

    def _paying(
        self, batteries: Batteries, interval: int, decision: Decision, asked: Sequence[np.ndarray], charge: Charge
    ) -> tuple[list[np.ndarray], Charge]:
        """The rows among these that can pay, as if all of them took part and nothing failed; the charge afterwards."""
        tasks = {}
        for place, (facts, rows) in enumerate(zip(self.subnets, asked, strict=True)):
            if rows.size:
                segments = self.aggregation_times.of(facts.name).segments(decision.local_steps)
                tasks[place] = Tasks.planned(rows, segments, facts.shares_noise)
                if self.epochs is not None:
                    steps = self.epochs * facts.steps_per_epoch[rows][None]
                    tasks[place] = replace(tasks[place], steps=steps, whole=False)
        heights = self.aggregation_times.heights(decision.local_steps, self.depth) if self.tiers else None
        pays, after = batteries.paying(charge, interval, decision.local_steps, tasks, heights)
        found = np.split(pays, self._firsts[1:])
        return [rows[can[rows]] for rows, can in zip(asked, found, strict=True)], after

    @property
    def cloud_sums(self) -> bool:
        """Whether the cloud sees the sum of its children alone."""
        return any(each.cloud_sums for each in self.subnets)

    @property
    def depth(self) -> int:
        """Tiers of aggregators below the cloud."""
        return max(each.depth for each in self.subnets)

    def _branches(self, subnets: Mapping[str, Plan]) -> list[Branch]:
        """The upload of each of these subnets."""
        branches: dict[int, Branch] = {}  # subnets that look alike have one plan
        for name, plan in subnets.items():
            if id(plan) not in branches:
                branches[id(plan)] = self.averaging.branch(self.facts[name], plan)
        return [branches[id(plan)] for plan in subnets.values()]

    def _with_tiers(self, plan: IntervalPlan) -> IntervalPlan:
        """The plan with those of the aggregators above edge servers."""
        plan = replace(plan, heights=self.aggregation_times.heights(plan.decision.local_steps, self.depth))
        planner = TreePlanner(self.tiers, self.averaging, self.noises, plan)
        branches, shares = planner.root(self.children), planner.shares(self.children)
        plan = replace(plan, branches=branches)
        weights = weights_below(plan.parts, plan.branch_weights)
        return replace(
            plan,
            shares=np.array([shares[name] for name in plan.subnets]),
            weights=np.array([weights.get(name, 0.0) for name in plan.subnets]),
            vectors=planner.vectors,
        )

    def _tasks(self, facts: SubnetFacts, interval: int, decision: Decision, rows: np.ndarray) -> Tasks:
        """The tasks of these devices."""
        segments = self.aggregation_times.of(facts.name).segments(decision.local_steps)
        known = self.faults, self.world or self.streams, facts.points, interval, rows, segments
        if self.epochs is None:
            tasks = tasks_under(*known)
        else:
            tasks = epochs_under(*known, self.epochs, facts.steps_per_epoch[rows])
        if facts.place is None or not facts.shares_noise:
            return tasks
        return replace(opened(facts.place.tolerance, tasks), masked=True)

    def _subnet_plan(
        self,
        subnet: SubnetFacts,
        interval: int,
        slot: int,
        decision: Decision,
        tasks: Tasks,
        begun: Backlog | None = None,
        past: Past | None = None,
    ) -> Plan:
        step_size, rows, segments = decision.step_size, tasks.rows, tasks.segments
        ages = None if begun is None else begun.weights
        weights, reach, portions = self.averaging.of_subnet(subnet, tasks, step_size, self.noise, ages)
        heights = self.aggregation_times.heights(sum(segments), subnet.depth) if self.tiers else ()
        own = [subnet.tier(height)[0] == 1 for height in heights[:-1]] if self.tiers else None
        part = Plan(
            at=Segment.row(interval, slot, segments, step_size, own),
            tasks=tasks,
            shares=subnet.shares(rows, self.averaging.weighting),
            noise_std=np.empty((len(segments), 0)),
            weights=weights,
            reach=reach,
            portions=portions,
            begun=begun,
        )
        part = replace(part, noise_std=self._levels(subnet, part, heights) * decision.noise_factor)
        if subnet.pipeline.has_code and self.noise is not None:
            known = subnet.name, self.parameters, rows, part.shares, step_size
            sums = [PlannedSum(*known, each) for each in segments]
            facts, noise_std = self._coded(subnet.pipeline, sums, part.noise_std)
            part = replace(part, stage_facts=facts, noise_std=noise_std)
        return part if past is None else replace(part, stage_facts=self._numbered(subnet, part, past))

    def _numbered(self, subnet: SubnetFacts, part: Plan, past: Past) -> tuple[StageFacts, ...]:
        """The numbers of each aggregation's releases in noise streams; one is counted where anything is sent."""
        assert subnet.place is not None, "somebody adds noise"
        found = []
        for phase in part.aggregations():
            if phase.rows.size:
                past = past.counted(phase.rows, subnet.place.by_node)
            found.append(StageFacts(numbers=tuple(past.counts.tolist())))
        return tuple(found)

    def _coded(
        self, pipeline: Pipeline, sums: Sequence[PlannedSum], noise_std: np.ndarray
    ) -> tuple[tuple[StageFacts, ...], np.ndarray]:
        """The codes by which other vectors stand for updates in each sum of a subnet, and the noises (segments, s)."""
        found = map(pipeline.coded, sums, noise_std)
        codes, levels = zip(*(each for each in found if each is not None), strict=True)
        return tuple(StageFacts(code) for code in codes), np.stack(levels)

    def _levels(self, subnet: SubnetFacts, part: Plan, heights: Sequence[int]) -> np.ndarray:
        """(segments, n) of the devices' noise, of the edge server's, or (segments, 0); 0 where a node above adds it."""
        rows, at = part.rows, part.at
        if self.noise is None or subnet.adds_noise in ("none", "cloud"):
            return part.noise_std
        rates, records = subnet.sampling_rates[rows], subnet.records[rows]
        tiers = [*(subnet.tier(height) for height in heights[:-1]), None] if heights else [None] * len(at)
        levels = []
        for number, segment in enumerate(at):
            place = subnet.places[subnet.passed(heights[number]) - 1 if heights else 0]
            assert place is not None, "somebody adds noise"
            span = Span(place, tiers[number], segment, sum(part.segments))
            exposures, weights = subnet.asked(self.noise.exposures(span, rates, records), rows), part.reach[number]
            if subnet.shares_noise:  # added before anyone can drop out
                weights = part.shares
            elif part.portions is not None:
                exposures = exposures * part.portions[number]
            own = 1.0 if place.node == 0 else 0.0
            levels.append(self.noise.unit(span) * place.levels(weights, exposures) * own)
        return np.stack(levels)
