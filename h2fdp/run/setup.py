"""What determines a run, its noise, and the run that is ready to start: its cloud, planner and schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
from torch import Tensor

from h2fdp.algorithms import ServerContext, server_of
from h2fdp.algorithms.server_update import upcycled
from h2fdp.costs import ExchangeSizes, Failing, IntervalCost, NetworkCosts, SumMessages, interval_cost, with_waiting
from h2fdp.costs.messages import watts
from h2fdp.data import public_features
from h2fdp.data.federated import STANDARDIZED, DeviceData, Standardizing
from h2fdp.data.source import DEVICES_TEST, PUBLIC_RECORDS
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import UNTIL
from h2fdp.models.registry import WARM_STARTED, PublicFeatures
from h2fdp.network import CLOUD, Topology
from h2fdp.network.devices import Floats
from h2fdp.privacy import Accounts, BudgetFilter, Mechanism, NoisePlacement, Observer, Pipeline, observers
from h2fdp.privacy.modular_sums import padded
from h2fdp.privacy.places import KEY_BITS, SHARE_BITS, UNTARGETED, NoiseSource, ReleaseKind, targeted_as
from h2fdp.privacy.releases import ADJACENCY_NOTES
from h2fdp.privacy.statement import verdict_of
from h2fdp.privacy.vectors import MOVES
from h2fdp.protocol import Averaging, Cloud, InProcessNodes, IntervalPlan, NodeGroup, Plan, Planner
from h2fdp.protocol.arrivals import Faults
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.protocol.tiers import Uplinks
from h2fdp.records import noise_key
from h2fdp.runtime import Blueprint
from h2fdp.schedules import AggregationTimes, Decision, Schedule, ScheduleContext, ScheduleTraits
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.own import CheckedSchedule
from h2fdp.schedules.registry import chosen
from h2fdp.streams import Streams
from h2fdp.training.local_steps import gradients_in_uploads, pull_of

MOVING = (
    "mobility: where each device is in which interval is public; the account of a device covers all its edge servers, "
    "and the observer edge is all of them together, as if they colluded; single-edge is the worst of them by itself, "
    "which receives all global models"
)
LABELS = (
    "association by data: how many records of each label a device has is public, as the topology states, and no "
    "epsilon covers it"
)
LYING = (
    "adversaries: these epsilons are of honest devices, which have no credit for the noise of liars; liars have none. "
    "A trusted edge server that lies does so about values, and still adds its noise"
)
SCORED = (
    "training.evaluate_devices: deciles and the worst tenth, and scores of personal models, weigh test records by the "
    "labels of each device, which no epsilon covers; tracking servers receive them too"
)
SUMS_ALONE = "secure sums: these epsilons hold only if the real network runs a secure aggregation protocol"
OVER_THE_AIR = (
    "radio.access: signals that add up in the air are not encrypted; these epsilons assume that access points alone "
    "receive them, and where trust is secure-sum, that no antenna separates them"
)
FILTERED = (
    "method.schedule: the schedule may depend on earlier releases, so the guarantee is that of a privacy filter, by "
    "rdp, and other accountants are indicative. An own schedule that does not depend on them needs less noise: set "
    "reads_releases = False in its class"
)


def adapts(config: ExperimentFile) -> bool:
    """Whether decisions depend on what a run releases.

    An own schedule may read releases that it is not handed. With `calibration: accounted` its run is held to its
    forecast (`Reserve`), which is sound whatever it reads; without, nothing would hold it, so it has to say.
    """
    traits = chosen(config.method.schedule)
    reads = traits.reads_releases
    if isinstance(traits, CheckedSchedule) and config.privacy.calibration != "accounted":
        reads = traits.states_reading is not False
    return reads and not traits.foreseen


def accountant_of(config: ExperimentFile) -> str:
    """Of the account that a run is held to: `privacy.accountant`, or `rdp` where a privacy filter keeps it to its
    target, or to budgets in place of one."""
    filtered = adapts(config) or (config.privacy.calibration == "paper" and config.privacy.budget)
    return "rdp" if filtered else config.privacy.accountant


@dataclass(frozen=True, kw_only=True, eq=False)
class RunInputs:
    """Everything that determines a run but its noise, which `calibrate` works out.

    Attributes:
        drawn: the topology as it was drawn for the seed.
        topology: the network that is simulated: a star of all devices where the method asks for one.
        initial: (M,) w(0).
        local_steps: tau_0; where devices train in epochs, the steps of the one that takes most.
        costs: of messages on the network's links.
        faults: how often devices and edge servers fail, and which channels are too bad for sums over the air.
        world: the streams of the simulated world (its faults; `costs` draws its fading from them). They stay the same
            when a resumed run draws its own noise, batches and participants afresh.
        warm_start: SHA-256 of the file that w(0) is from; None where it is random.
        given: the data before they became features or were standardised; `data` itself where they are as they were.
        standardizing: how inputs were standardised; None where they are as they were given.
        chosen: what was chosen for keys that the file leaves open, in words (`run.recipe`).
    """

    config: ExperimentFile
    drawn: Topology
    topology: Topology
    data: DeviceData
    blueprint: Blueprint
    initial: Tensor
    aggregation_times: AggregationTimes
    local_steps: int
    costs: NetworkCosts
    faults: Faults
    world: Streams
    given: DeviceData
    warm_start: str | None = None
    standardizing: Standardizing | None = None
    chosen: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Of the images whose public features the data are; None where they are no features."""
        return self.given.shape if isinstance(self.config.model, PublicFeatures) else None

    @property
    def server_context(self) -> ServerContext:
        """What the server update is built from."""
        blueprint = self.blueprint
        return ServerContext(self.initial.numel(), blueprint.objective, blueprint.module, blueprint.clipping)

    @property
    def placement(self) -> NoisePlacement:
        """Where noise is added."""
        return self.blueprint.noise_placement

    @property
    def adapts(self) -> bool:
        """Whether decisions depend on what the run releases, so that its forecast bounds nothing."""
        return adapts(self.config)

    @property
    def accountant(self) -> str:
        """By which a target is met, see `accountant_of`."""
        return accountant_of(self.config)

    @property
    def beyond_formulas(self) -> bool:
        """Whether no formula counts what a device releases, or knows whose noise hides it."""
        return self.traits.buffers or self.topology.visits is not None or self.topology.adversaries is not None

    @property
    def shown(self) -> Topology:
        """The network whose edge servers are counted: with the relays of a sum over all of it."""
        return self.drawn if self.topology.relayed else self.topology

    @property
    def sizes(self) -> dict[str, int]:
        """Edge server -> number of its devices."""
        return {subnet.name: subnet.size for subnet in self.topology.subnets}

    @property
    def observers(self) -> tuple[Observer, ...]:
        """All observers in the network, from the edge servers up."""
        return observers(self.topology.depth)

    @property
    def target_observers(self) -> tuple[Observer, ...]:
        """Those whose accounts have to meet a calibration's target; by default all observers of the network."""
        stated = tuple(self.config.privacy.target_observers)
        return self.observers if stated == observers() else stated

    @property
    def target(self) -> float | None:
        """The accounted epsilon that the noise was calibrated to; None where a formula was."""
        return self.config.privacy.epsilon if self.config.privacy.calibration == "accounted" else None

    def verdict(self, observer: Observer, claimed: float | None, accounted: float) -> str:
        """The word for what an observer holds: about the target where there is one, otherwise about the claim."""
        if self.target is None:
            return verdict_of(claimed, accounted)
        if targeted_as(observer) not in self.target_observers:
            return UNTARGETED
        return verdict_of(self.target, accounted)

    def empty_accounts(self) -> Accounts:
        """Accounts of the run's network with nothing released."""
        return Accounts(self.sizes, self.observers, self.topology.visits)

    @property
    def device_names(self) -> list[str]:
        """Of all devices, each once, in the order of the topology file and of the accounts."""
        return self.drawn.device_names()

    def without_faults(self) -> Self:
        """The same run in a world where nothing fails: what was planned."""
        return replace(self, faults=Faults()) if self.faults.possible else self

    def drawing(self, attempt: str) -> Self:
        """The same run with noise, batches and participants drawn under another name; see `Streams.attempt`."""
        streams = replace(self.blueprint.streams, attempt=attempt)
        return replace(self, blueprint=replace(self.blueprint, streams=streams))

    @property
    def traits(self) -> ScheduleTraits:
        """What is known of the schedule before the run."""
        return chosen(self.config.method.schedule)


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """The noise of a run, calibrated.

    Attributes:
        noise: None where the method adds none.
        iterations: R_c, the local iterations that the target allows each device; None where it sets no limit.
        factor: by which `calibration: accounted` multiplied the noises.
        uncalibrated: the noise before it was calibrated to an account. What a controller weighs: its decisions are then
            the same, to the bit, in the forecast that the noise is calibrated to and in the run.
        reserve: what a controller is held to, or a user's own schedule that reads no releases: they decide what they
            like, whatever was foreseen. None elsewhere; all other schedules make their forecast true.
        watched: the filter that keeps a run to the target whose decisions depend on what it releases; None elsewhere.
    """

    noise: Mechanism | None = None
    iterations: int | None = None
    factor: float = 1.0
    uncalibrated: Mechanism | None = None
    watched: BudgetFilter | None = None
    reserve: Accounts | None = None


def range_of(power_dbm: Floats) -> dict[str, float]:
    """Of (n,) powers the least, their mean (of decibels) and the most."""
    return {"least": float(power_dbm.min()), "mean": float(power_dbm.mean()), "most": float(power_dbm.max())}


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
        return Cloud(
            self.initial,
            planner,
            edges,
            schedule,
            server=upcycled(server_of(method.server, self.server_context), method.upcycle),
            remembers=self.blueprint.objective.memory is not None or Pipeline(self.blueprint.compression).remembers,
            meter=self.interval_costs,
            aggregators=aggregators,
            uplinks=Uplinks(Pipeline(self.blueprint.uplink), self.blueprint.streams),
            lies=self.blueprint.lies_among_edges(),
            down=self.blueprint.downlink,
        )

    @cached_property
    def first_plan(self) -> IntervalPlan:
        """The plan of the first interval, which calibration and reports all ask for: large networks take seconds."""
        return self.cloud(InProcessNodes({})).plan(0)

    def interval_costs(self, plan: IntervalPlan) -> dict[str, float]:
        """What an interval costs under the fading that it draws, by columns of the metrics (H2FDP, Sec. 11)."""
        return self.cost_columns(self.interval_cost(plan), plan)

    def cost_columns(self, cost: IntervalCost, plan: IntervalPlan) -> dict[str, float]:
        """The same of its cost. The clock (seconds) also advances by its slots when no device takes part."""
        slots = plan.decision.local_steps * float(np.min(self.costs.step.seconds))
        clock_s = plan.decision.clock_s if plan.decision.clock_s is not None else max(cost.clock_s, slots)
        found = {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": clock_s, "bytes": cost.bytes}
        more = self.handover_costs(plan.interval)
        return {column: value + more.get(column, 0.0) for column, value in found.items()}

    def handover_costs(self, interval: int) -> dict[str, float]:
        """What edge servers spend before an interval on messages about devices that leave them; empty without any.

        Each sends one after another, all at the same time.
        """
        visits, mobility = self.topology.visits, self.topology.mobility
        if visits is None or mobility is None or (wire := mobility.handover) is None:
            return {}
        left, entered = self.topology.table.home[visits.moved(interval)].T
        messages = np.bincount(left[left != entered], minlength=1)
        bits = self.costs.message_bits
        seconds, count = bits / wire.rate_bps, int(messages.sum())
        return {
            "energy_j": float(watts(wire.power_dbm)) * seconds * count,
            "delay_s": seconds * count,
            "clock_s": seconds * int(messages.max()),
            "bytes": count * bits / 8,
        }

    def interval_cost(self, plan: IntervalPlan) -> IntervalCost:
        """All of it, by device and subnet."""
        parts, costs = plan.subnets | plan.lost, self.costs.drawn(plan.interval)
        cost = interval_cost(
            costs,
            self.topology,
            [self._numbers[name] for name in parts],
            [subnet.rows for subnet in parts.values()],
            [subnet.segments for subnet in parts.values()],
            [
                None if (work := subnet.completed) is None else Failing(work.steps > 0, subnet.steps_computed)
                for subnet in parts.values()
            ],
            plan.heights or None,
            [self._sum_messages(subnet) for subnet in parts.values()],
            self._upper_sums,
        )
        arrivals = plan.decision.arrivals
        if arrivals is None or not arrivals.waiting:
            return cost
        uploads, steps = np.zeros(self.topology.devices), np.zeros(self.topology.devices)
        for number, rows in arrivals.waiting.items():
            at = int(self.blueprint.first_devices[number]) + np.array(list(rows))
            name = self.topology.subnets[number].name
            uploads[at] = list(rows.values())
            steps[at] = uploads[at] * self.aggregation_times.of(name).segments(plan.decision.local_steps)[0]
        return with_waiting(cost, costs, self.topology, uploads, steps)

    def powers(self, plan: IntervalPlan) -> dict[str, float] | None:
        """With how many dBm the devices of an interval send, at least, in the mean and at most.

        None where no device chooses, or none takes part.
        """
        parts = plan.subnets | plan.lost
        if not self.costs.chooses_power or not any(len(subnet.rows) for subnet in parts.values()):
            return None
        firsts = self.blueprint.first_devices
        rows = [firsts[self._numbers[name]] + subnet.rows for name, subnet in parts.items()]
        return range_of(self.costs.drawn(plan.interval).power_dbm[np.concatenate(rows)])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {subnet.name: number for number, subnet in enumerate(self.topology.subnets)}

    @cached_property
    def _upper_sums(self) -> dict[str | None, ExchangeSizes]:
        """What the children of those above edge servers exchange that hold secure sums."""
        if self.exchange_sizes is None:
            return {}
        holders = [each.name for each in self.topology.aggregators if each.trust == "secure-sum"]
        summing = self.placement.sees(self.topology.cloud_trust) == "sum"
        return dict.fromkeys([*holders, None] if summing else holders, self.exchange_sizes)

    def _sum_messages(self, subnet: Plan) -> SumMessages | None:
        sizes = self.exchange_sizes
        if not subnet.masked or sizes is None or self.topology.radio.truncation is not None:  # signals add up unmasked
            return None
        segments, devices = len(subnet.segments), len(subnet.rows)
        if subnet.completed is None:
            return SumMessages.planned(sizes, segments, devices)
        work, none = subnet.completed, np.zeros((segments, devices), dtype=bool)
        begun = ~none if work.begun is None else work.begun
        unopened = none if work.unopened is None else work.unopened
        opened = np.asarray(~unopened.any(axis=1))
        return SumMessages(sizes, begun, (work.steps > 0) | unopened, opened)

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
            SCORED: self.data.test_owners is None
            and (self.config.training.evaluate_devices or self.blueprint.objective.personal),
            FILTERED: self.adapts,
            PUBLIC_RECORDS: self.data.public is not None,
            WARM_STARTED: self.warm_start is not None,
            features: features is not None,
            STANDARDIZED: self.standardizing is not None and self.data.test_owners is None,
            UNTIL: "accuracy" in (self.config.training.until or {}),
            MOVES: self.blueprint.adaptive is not None,
            MOVING: self.topology.visits is not None,
            LYING: self.topology.adversaries is not None,
            OVER_THE_AIR: self.topology.radio.truncation is not None,
            LABELS: self.drawn.association is not None and self.drawn.association.by == "data",
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
            visits=self.topology.visits,
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
            turns=training.device_turns,
            budget_decay=training.budget_decay,
            parameters=self.initial.numel(),
            sampling_rates=self.blueprint.rates,
            records=self.data.sizes,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            c2=privacy.c2,
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
