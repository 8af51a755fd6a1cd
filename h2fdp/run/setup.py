"""A run that is ready to start: its cloud, planner and schedule, built from what determines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from h2fdp.algorithms import ServerContext, server_of
from h2fdp.algorithms.upcycled import upcycled
from h2fdp.costs import ExchangeSizes, Failing, NetworkCosts, SumMessages, interval_cost
from h2fdp.data import public_features
from h2fdp.data.federated import STANDARDIZED
from h2fdp.data.source import DEVICES_TEST, PUBLIC_RECORDS
from h2fdp.experiment.training_section import UNTIL
from h2fdp.models.registry import WARM_STARTED
from h2fdp.network import CLOUD, Topology
from h2fdp.network.devices import Floats
from h2fdp.privacy import NoiseSource, ReleaseKind, padded
from h2fdp.privacy.places import KEY_BITS, SHARE_BITS
from h2fdp.privacy.releases import ADJACENCY_NOTES
from h2fdp.privacy.vectors import MOVES
from h2fdp.protocol import Averaging, Cloud, IntervalPlan, NodeGroup, Plan, Planner
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.records import noise_key
from h2fdp.run.inputs import FILTERED, Noise, RunInputs
from h2fdp.schedules import Decision, Schedule, ScheduleContext
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.training.local_steps import gradients_in_uploads, pull_of

SUMS_ALONE = "secure sums: these epsilons hold only if the real network runs a secure aggregation protocol"


@dataclass(frozen=True)
class IntervalMeter:
    """Costs of intervals in a network (H2FDP, Sec. 11).

    Attributes:
        costs: of messages on its links.
        exchanges: what devices exchange under secure-sum edge servers; None where the method has no secure sums.
        cloud_sums: whether the cloud holds a secure sum.
    """

    topology: Topology
    costs: NetworkCosts
    exchanges: ExchangeSizes | None
    cloud_sums: bool

    def __call__(self, plan: IntervalPlan) -> dict[str, float]:
        """What an interval costs under the fading that it draws, by columns of the metrics.

        The clock (seconds) also advances by the interval's slots when no device takes part.
        """
        parts = plan.subnets | plan.lost
        cost = interval_cost(
            self.costs.drawn(plan.interval),
            self.topology,
            [self._numbers[name] for name in parts],
            [subnet.rows for subnet in parts.values()],
            [subnet.segments for subnet in parts.values()],
            [_failing(subnet) for subnet in parts.values()],
            plan.heights or None,
            [self._sum_messages(subnet) for subnet in parts.values()],
            self._upper_sums,
        )
        slots = plan.decision.local_steps * float(np.min(self.costs.step.seconds))
        clock_s = plan.decision.clock_s if plan.decision.clock_s is not None else max(cost.clock_s, slots)
        return {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": clock_s}

    def powers(self, plan: IntervalPlan) -> dict[str, float] | None:
        """With how many dBm the devices of an interval send, at least, in the mean and at most.

        None where no device chooses, or none takes part.
        """
        parts = plan.subnets | plan.lost
        if not self.costs.chooses_power or not any(len(subnet.rows) for subnet in parts.values()):
            return None
        sizes = self.topology.sizes
        firsts = np.cumsum(sizes) - sizes
        rows = [firsts[self._numbers[name]] + subnet.rows for name, subnet in parts.items()]
        return range_of(self.costs.drawn(plan.interval).power_dbm[np.concatenate(rows)])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {subnet.name: number for number, subnet in enumerate(self.topology.subnets)}

    @cached_property
    def _upper_sums(self) -> dict[str | None, ExchangeSizes]:
        """What the children of those above edge servers exchange that hold secure sums."""
        if self.exchanges is None:
            return {}
        holders = [each.name for each in self.topology.aggregators if each.trust == "secure-sum"]
        return dict.fromkeys([*holders, None] if self.cloud_sums else holders, self.exchanges)

    def _sum_messages(self, subnet: Plan) -> SumMessages | None:
        sizes = self.exchanges
        if not subnet.masked or sizes is None:
            return None
        segments, devices = len(subnet.segments), len(subnet.rows)
        if subnet.completed is None:
            return SumMessages.planned(sizes, segments, devices)
        work, none = subnet.completed, np.zeros((segments, devices), dtype=bool)
        begun = ~none if work.begun is None else work.begun
        unopened = none if work.unopened is None else work.unopened
        opened = np.asarray(~unopened.any(axis=1))
        return SumMessages(sizes, begun, (work.steps > 0) | unopened, opened)


def range_of(power_dbm: Floats) -> dict[str, float]:
    """Of (n,) powers the least, their mean (of decibels) and the most."""
    return {"least": float(power_dbm.min()), "mean": float(power_dbm.mean()), "most": float(power_dbm.max())}


def _failing(subnet: Plan) -> Failing | None:
    return None if subnet.completed is None else Failing(subnet.completed.steps > 0, subnet.steps_computed)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSetup(RunInputs, Noise):
    """A run, complete but not started: its inputs, and the noise that is calibrated to them."""

    @classmethod
    def of(cls, inputs: RunInputs, noise: Noise) -> RunSetup:
        """The run of these inputs under this noise."""
        return cls(**vars(inputs), **vars(noise))

    @property
    def leaks(self) -> bool:
        """Whether raw estimates go to the cloud, so that no epsilon bounds what the run reveals."""
        measuring = self.blueprint.measuring
        return self.noise is not None and (self.probes or (measuring is not None and measuring.leaks))

    @property
    def probes(self) -> bool:
        """Whether devices measure constants of their losses for the schedule, raw."""
        schedule, intervals = self.traits, self.config.training.intervals
        return schedule.measures_within(intervals, self.iterations) == "secants"

    @property
    def chooses_noise(self) -> bool:
        """Whether the noise of each interval is chosen for what its filter has left; else the filter ends the run."""
        return self.watched is not None and not (self.traits.scales_noise or self.traits.ends_by_account)

    def noises_of(self, plan: IntervalPlan) -> Iterator[tuple[str, NoiseSource, ReleaseKind, Floats]]:
        """Of each noise of an interval: whose average it is on, who adds it, the kind of release, (n,) all its levels
        above 0 (it is 0 where a node further up adds it)."""
        if self.noise is None:
            return
        for name, part in plan.subnets.items():
            for segment in range(len(part.segments)):
                levels = part.aggregation(segment).noise_std
                yield name, self._sources[name], self.noise.kind(part.kind(segment)), levels[levels > 0]
        for name, kind, level in plan.upper_noises:
            yield name, "edge", self.noise.kind(kind), np.array([level])
        if plan.noise_std:
            yield CLOUD, "cloud", self.noise.kind("global"), np.array([plan.noise_std])

    @cached_property
    def _sources(self) -> Mapping[str, NoiseSource]:
        """Edge server -> who adds noise below it."""
        return {facts.name: facts.adds_noise for facts in self.blueprint.facts}

    @property
    def step_noise_multiplier(self) -> float | None:
        """sigma of the noise on every local step (DP-SGD); None where there is none."""
        return None if self.noise is None else self.noise.step_noise_multiplier

    def cloud(self, edges: NodeGroup) -> Cloud:
        """The cloud at the start of the run, above these edge servers."""
        method, schedule = self.config.method, self.schedule()
        aggregators = self.blueprint.aggregators(self.blueprint.tiers())
        planner = self._planner(schedule.observes)
        context = ServerContext(self.initial.numel(), self.blueprint.objective)
        return Cloud(
            self.initial,
            planner,
            edges,
            schedule,
            server=upcycled(server_of(method.server, context), method.upcycle),
            remembers=self.blueprint.objective.memory is not None,
            meter=self.interval_costs,
            aggregators=aggregators,
        )

    @cached_property
    def interval_costs(self) -> IntervalMeter:
        """What planned intervals cost."""
        return IntervalMeter(self.topology, self.costs, self.exchange_sizes, self.placement.cloud_sums)

    @cached_property
    def exchange_sizes(self) -> ExchangeSizes | None:
        """Of what devices exchange under secure-sum edge servers; None where the method has no secure sums."""
        if self.placement.sees("secure-sum") == "each":
            return None
        message = vector = self.costs.message_bits
        if self.placement.rounding is not None:
            vector = self.placement.rounding * padded(self.initial.numel())
        return ExchangeSizes.of_bits(key=KEY_BITS, share=SHARE_BITS, vector=vector, message=message)

    def exhausted(self) -> Self:
        """The same devices taking every local iteration that there may be, one an interval."""
        config, iterations = self.config, self.iterations
        assert iterations is not None, "this schedule spends iterations"
        method = config.method.model_copy(update={"schedule": FixedOptions()})
        training = config.training.model_copy(update={"intervals": iterations, "local_steps": 1})
        changed = config.model_copy(update={"method": method, "training": training})
        return replace(self, config=changed, local_steps=1)

    @property
    def has_noise_key(self) -> bool:
        """Whether noise and batches are drawn under a secret key; otherwise the seed determines them."""
        return self.noise is not None and self.config.privacy.noise_key == "system"

    @property
    def noise_key(self) -> bytes:
        """See `records.noise_key`; empty where there is none."""
        return self.blueprint.streams.secret

    def keyed(self, key: bytes | None = None) -> Self:
        """The same run under this noise key, by default a new one; unchanged where it has none."""
        if not self.has_noise_key:
            return self
        streams = replace(self.blueprint.streams, secret=noise_key.drawn() if key is None else key)
        return replace(self, blueprint=replace(self.blueprint, streams=streams))

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said with every epsilon of this run."""
        if self.noise is None:
            return self.placement.notes
        features = None if self.image_shape is None else public_features.note(self.image_shape)
        conditions = {
            noise_key.BY_SEED: not self.has_noise_key,
            SUMS_ALONE: any(facts.sees_sums for facts in self.blueprint.facts),
            DEVICES_TEST: self.data.test_owners is not None,
            FILTERED: self.adapts,
            PUBLIC_RECORDS: self.data.public is not None,
            WARM_STARTED: self.warm_start is not None,
            features: features is not None,
            STANDARDIZED: self.standardizing is not None and self.data.test_owners is None,
            UNTIL: "accuracy" in (self.config.training.until or {}),
            MOVES: self.blueprint.adaptive is not None,
            ADJACENCY_NOTES.get(self.config.privacy.adjacency): self.config.privacy.adjacency in ADJACENCY_NOTES,
        }
        return (*self.placement.notes, *(note for note, holds in conditions.items() if note is not None and holds))

    def _planner(self, observes: bool) -> Planner:
        """Plans intervals; `observes` where a schedule learns from what devices measure, if anything."""
        config, tiers = self.config, self.blueprint.tiers()
        estimates = "released" if self.blueprint.measuring is None else config.control.estimates
        return Planner(
            streams=self.blueprint.streams,
            subnets=self.blueprint.facts,
            aggregation_times=self.aggregation_times,
            noise=self.noise,
            averaging=Averaging(
                self.blueprint.aggregation,
                config.training.weights,
                partial(gradients_in_uploads, config.training.momentum, pull_of(self.blueprint.objective) or 0.0),
            ),
            faults=self.faults,
            epochs=config.training.local_epochs,
            measures=observes and estimates != "released",
            leaks=estimates == "oracle",
            world=self.world,
            tiers=tiers,
            children=self.topology.children(None),
            parameters=self.initial.numel(),
            adjacency=config.privacy.adjacency,
            adaptive=self.blueprint.adaptive,
        )

    def noise_brought(self, tau: int) -> np.ndarray:
        """(N,) each subnet's part of the noise variance on the global model after an interval of tau steps of size 1,
        in which all devices that may take part do: what the mechanism really adds, before it is calibrated to an
        account. Noise of aggregators above edge servers is divided equally.
        """
        planner, plan = self._whole_interval(tau)
        parts = [
            weight**2 * planner.noises.variances(plan, name).sum()
            for name, weight in zip(plan.subnets, plan.weights.tolist(), strict=True)
        ]
        whole, _ = noise_and_gradients(plan, planner.facts, planner.noise)
        return np.asarray(np.array(parts) + max(0.0, whole - sum(parts)) / len(parts))

    def releases_made(self, tau: int) -> int:
        """The most releases about one device that an observer has of an interval of tau steps, if all take part."""
        planner, plan = self._whole_interval(tau)
        accounts = self.empty_accounts()
        accounts.add(planner.releases(plan))
        found = (each.composition for observer in self.observers for each in accounts.classes(observer))
        return max((sum(each.values()) for each in found), default=0)

    def _whole_interval(self, tau: int) -> tuple[Planner, IntervalPlan]:
        """An interval of tau steps of size 1 in which all devices that may take part do, before calibration."""
        noise = self.noise if self.uncalibrated is None else self.uncalibrated
        planner = replace(self.without_faults(), noise=noise)._planner(observes=False)
        return planner, planner.plan(0, 0, Decision(tau, 1.0, self.context.participation))

    @property
    def context(self) -> ScheduleContext:
        """What the schedule is built from."""
        training, privacy = self.config.training, self.config.privacy
        subnets = self.blueprint.facts
        return ScheduleContext(
            topology=self.topology,
            costs=self.costs,
            streams=self.blueprint.streams.public,
            aggregation_times=self.aggregation_times,
            one_noise=np.array([each.shares_noise or each.adds_noise == "edge" for each in subnets]),
            exchanges=[self.exchange_sizes if each.shares_noise else None for each in subnets],
            intervals=training.intervals,
            local_steps=self.local_steps,
            step_size=training.step_size,
            step_decay=training.step_decay,
            share=training.participation,
            parameters=self.initial.numel(),
            sampling_rates=self.blueprint.rates,
            records=self.data.sizes,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            c2=privacy.c2,
            v2=privacy.c2 if privacy.v2 is None else privacy.v2,
            clip_norm=training.first_clip_norm,
            control=self.config.control,
            step_noise_multiplier=self.step_noise_multiplier,
            iterations=self.iterations,
            noise=None if self.noise is None else self.noise_brought,
            accounted=privacy.calibration == "accounted",
            releases=None if self.noise is None else self.releases_made,
        )

    def schedule(self) -> Schedule:
        """The schedule at the start of the run."""
        return self.traits.build(self.context)
