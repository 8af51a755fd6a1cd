"""The inputs that determine a run, its noise, and the run that is ready to start: its cloud, planner and schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from h2fdp.algorithms import ServerContext, server_of
from h2fdp.algorithms.server_update import ServerUpdate, Upcycled
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes
from h2fdp.data.federated import DeviceData
from h2fdp.data.public_features import PublicFeatures
from h2fdp.data.statistics import Standardizing, Statistic
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.privacy import Accounts, BudgetFilter, Mechanism, NoisePlacement, Observer, observers
from h2fdp.privacy.modular_sums import padded
from h2fdp.privacy.own_targets import Targets
from h2fdp.privacy.places import KEY_BITS, SHARE_BITS
from h2fdp.protocol import Averaging, Cloud, InProcessNodes, IntervalPlan, NodeGroup, Planner
from h2fdp.protocol.arrivals import Faults
from h2fdp.protocol.interval_plan import PlanCosts
from h2fdp.protocol.planned_releases import NoiseOnModel, noise_and_gradients
from h2fdp.protocol.tiers import Uplinks
from h2fdp.records import noise_key
from h2fdp.runtime import Blueprint
from h2fdp.schedules import AggregationTimes, Decision, Schedule, ScheduleContext, ScheduleTraits
from h2fdp.schedules.registry import CheckedSchedule
from h2fdp.streams import Streams


def adapts(config: ExperimentFile) -> bool:
    """Whether decisions depend on what a run releases.

    An own schedule may read releases that it is not handed. With `calibration: accounted` its forecast
    bounds the run (`Reserve`), which is sound whatever it reads; without, nothing would, so it has to say.
    """
    traits = config.method.traits
    reads = traits.reads_releases
    if isinstance(traits, CheckedSchedule) and config.privacy.calibration != "accounted":
        reads = traits.states_reading is not False
    return reads and not traits.foreseen


def accountant_of(config: ExperimentFile) -> str:
    """The accountant that bounds a run: `privacy.accountant`, or `rdp` where a privacy filter keeps the run to its
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
        world: the streams of faults and fading, which stay the same when a resumed run draws noise, batches and
            participants afresh.
        warm_start: SHA-256 of the file that w(0) is from; None where it is random.
        given: the data before they became features or were standardised; `data` itself where they are as they were.
        features: what the data became; None where they are no features.
        standardizing: how inputs were standardised; None where they are as they were given.
        chosen: what was chosen for keys that the file leaves open, in words (`run.recipe`).
        prelude: the statistics that are released before the first interval, see `run.prelude`.
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
    features: PublicFeatures | None = None
    standardizing: Standardizing | None = None
    chosen: tuple[str, ...] = ()
    prelude: tuple[StatisticRun, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """The shape of the images whose public features the data are; None where they are no features."""
        return None if self.features is None else self.given.shape

    @property
    def server_context(self) -> ServerContext:
        """The context from which the server update is built."""
        blueprint = self.blueprint
        return ServerContext(self.initial.numel(), blueprint.descent.objective, blueprint.module, blueprint.clipping)

    @property
    def placement(self) -> NoisePlacement:
        """The placement of noise."""
        return self.blueprint.noise_placement

    @property
    def personal(self) -> bool:
        """Whether devices have other models than the global one: their own, or those of their subnets."""
        return self.blueprint.descent.objective.personal or getattr(self.config.method.server, "personal", False)

    @property
    def adapts(self) -> bool:
        """Whether decisions depend on what the run releases, so that its forecast bounds nothing."""
        return adapts(self.config)

    @property
    def accountant(self) -> str:
        """The accountant by which a target is met; see `accountant_of`."""
        return accountant_of(self.config)

    @property
    def beyond_formulas(self) -> bool:
        """Whether no formula counts what a device releases, or knows whose noise hides it."""
        moves, replaced = self.topology.membership is not None, self.topology.replacing is not None
        return self.traits.buffers or moves or replaced or bool(self.prelude) or self.blueprint.draw is not None

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
        """The observers whose accounts must meet a calibration's target; by default all observers of the network."""
        stated = tuple(self.config.privacy.target_observers)
        return self.observers if stated == observers() else stated

    @property
    def target(self) -> float | None:
        """The accounted epsilon that the noise was calibrated to; None where a formula was."""
        return self.config.privacy.epsilon if self.config.privacy.calibration == "accounted" else None

    @property
    def targets(self) -> Targets:
        """The epsilon that bounds each device's account, where noise is calibrated to accounts."""
        return Targets.in_network(self.config.privacy.epsilon, self.drawn)

    def empty_accounts(self) -> Accounts:
        """Accounts of the run's network with nothing released."""
        return Accounts(self.sizes, self.observers, self.topology.membership)

    def without_faults(self) -> Self:
        """The run as planned, in a world where nothing fails."""
        return replace(self, faults=Faults()) if self.faults.possible else self

    def drawing(self, attempt: str) -> Self:
        """A run with noise, batches and participants drawn under another name; see `Streams.attempt`."""
        streams = replace(self.blueprint.streams, attempt=attempt)
        return replace(self, blueprint=replace(self.blueprint, streams=streams))

    @property
    def traits(self) -> ScheduleTraits:
        """The traits of the schedule, which are known before the run."""
        return self.config.method.traits


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """The noise of a run, calibrated.

    Attributes:
        noise: None where the method adds none.
        iterations: R_c, the local iterations that the target allows each device; None where it sets no limit.
        factor: by which `calibration: accounted` multiplied the noises.
        uncalibrated: the noise before it was calibrated to an account. What a controller weighs: its decisions are then
            the same, to the bit, in the forecast that the noise is calibrated to and in the run.
        reserve: the bound on a controller, or on a user's own schedule that reads no releases: they decide what they
            like, whatever was foreseen. None elsewhere; all other schedules make their forecast true.
        watched: the filter that keeps a run to the target whose decisions depend on what it releases; None elsewhere.
        on_model: the noise on the global model, if nothing fails; None where its plans were not those of the account.
        before: the factor on the noise of each statistic of the prelude; empty until these are known.
        eases: (I,) see `SubnetFacts.eases`.
    """

    noise: Mechanism | None = None
    iterations: int | None = None
    factor: float = 1.0
    uncalibrated: Mechanism | None = None
    watched: BudgetFilter | None = None
    reserve: Accounts | None = None
    on_model: NoiseOnModel | None = None
    before: tuple[float, ...] = ()
    eases: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSetup(RunInputs, Noise):
    """A run, complete but not started: its inputs, and the noise that is calibrated to them."""

    @classmethod
    def of(cls, inputs: RunInputs, noise: Noise) -> RunSetup:
        """The run of these inputs under this noise."""
        if noise.eases is not None:
            inputs = replace(inputs, blueprint=replace(inputs.blueprint, eases=noise.eases))
        return cls(**vars(inputs), **vars(noise))

    @cached_property
    def statistics(self) -> tuple[RunSetup, ...]:
        """The run of each statistic of the prelude, under its noise and the keys of this run."""
        streams, factors, found = self.blueprint.streams, self.before or [1.0] * len(self.prelude), []
        for number, (each, factor) in enumerate(zip(self.prelude, factors, strict=True), start=1):
            own = replace(streams, attempt=f"{streams.attempt}|prelude {number} {each.statistic.name}")
            noise = None if each.run.noise is None else each.run.noise.scaled(factor)
            blueprint = replace(each.run.blueprint, streams=own, eases=self.eases)
            found.append(replace(each.run, noise=noise, blueprint=blueprint))
        return tuple(found)

    @property
    def leaks(self) -> bool:
        """Whether raw measurements go to the cloud, so that no epsilon bounds what the run reveals."""
        return self.noise is not None and self.measures

    @property
    def measures(self) -> bool:
        """Whether devices measure for the schedule, raw."""
        within = self.traits.measures_within(self.config.training.intervals, self.iterations)
        return self.blueprint.measures is not None and within is not None

    def cloud(self, edges: NodeGroup) -> Cloud:
        """The cloud at the start of the run, above these edge servers."""
        bill, schedule = self.bill, self.schedule()
        return Cloud(
            self.initial,
            self._planner(),
            edges,
            schedule,
            server=self._server(),
            remembers=self.blueprint.remembers,
            meter=bill.columns,
            aggregators=self.blueprint.aggregators() if self.topology.aggregators else {},
            uplinks=Uplinks(self.blueprint.messages.edges, self.blueprint.streams),
            replacement=self.blueprint.among_edges(),
            down=self.blueprint.messages.models,
            measures=self.measures,
        )

    def _server(self) -> ServerUpdate:
        """The cloud's update of the model from an average."""
        method, context = self.config.method, self.server_context
        server = server_of(method.server, context)
        if method.upcycle is not None:
            server = Upcycled(server, method.upcycle)
        return server

    @cached_property
    def first_plan(self) -> IntervalPlan:
        """The plan of the first interval, which calibration and reports all ask for: large networks take seconds."""
        return self.cloud(InProcessNodes({})).plan(0)

    @cached_property
    def bill(self) -> PlanCosts:
        """The costs of intervals."""
        holders: list[str | None] = [each.name for each in self.topology.aggregators if each.trust == "secure-sum"]
        if self.placement.sees(self.topology.cloud_trust) == "sum":
            holders.append(None)
        draw, streams = self.blueprint.draw, self.blueprint.streams
        known = self.topology, self.costs, self.aggregation_times, self.exchange_sizes, holders
        return PlanCosts(*known, draw, streams)

    @cached_property
    def exchange_sizes(self) -> ExchangeSizes | None:
        """The sizes of devices' exchanges under secure-sum edge servers; None where the method has no secure sums."""
        if self.placement.sees("secure-sum") == "each":
            return None
        message = vector = self.costs.message_bits
        if self.placement.rounding is not None:
            vector = self.placement.rounding * padded(self.initial.numel())
        return ExchangeSizes.of_bits(key=KEY_BITS, share=SHARE_BITS, vector=vector, message=message)

    @property
    def has_noise_key(self) -> bool:
        """Whether noise and batches are drawn under a secret key; otherwise the seed determines them."""
        return self.noise is not None and self.config.privacy.noise_key == "system"

    @property
    def noise_key(self) -> bytes:
        """The noise key (`records.noise_key`); empty where there is none."""
        return self.blueprint.streams.secret

    def keyed(self, key: bytes | None = None) -> Self:
        """A run under this noise key, by default a new one; unchanged where it has none."""
        if not self.has_noise_key:
            return self
        streams = replace(self.blueprint.streams, secret=noise_key.drawn() if key is None else key)
        return replace(self, blueprint=replace(self.blueprint, streams=streams))

    def _planner(self) -> Planner:
        config = self.config
        return Planner(
            streams=self.blueprint.streams,
            subnets=self.blueprint.facts,
            aggregation_times=self.aggregation_times,
            noise=self.noise,
            averaging=Averaging(self.blueprint.aggregation, config.training.weights, self.blueprint.descent.counts),
            faults=self.faults,
            epochs=config.training.local_epochs,
            world=self.world,
            tiers=self.blueprint.tiers if self.topology.aggregators else {},
            children=self.topology.children(None),
            parameters=self.initial.numel(),
            adjacency=config.privacy.adjacency,
            membership=self.topology.membership,
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
        accounts.add(planner.noises.releases(plan))
        found = (each.composition for observer in self.observers for each in accounts.classes(observer))
        return max((sum(each.values()) for each in found), default=0)

    def _whole_interval(self, tau: int) -> tuple[Planner, IntervalPlan]:
        """An interval of tau steps of size 1 in which all devices that may take part do, before calibration."""
        noise = self.noise if self.uncalibrated is None else self.uncalibrated
        planner = replace(self.without_faults(), noise=noise)._planner()
        return planner, planner.plan(0, 0, Decision(tau, 1.0, self.context.participation))

    @property
    def context(self) -> ScheduleContext:
        """The context from which the schedule is built."""
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
            warm_up=training.warm_up,
            share=training.public_share,
            turns=training.turns,
            regrouped=privacy.noise_law is not None and all(each.shares_noise for each in subnets),
            budget_decay=training.budget_decay,
            parameters=self.initial.numel(),
            sampling_rates=self.blueprint.rates,
            records=self.data.sizes,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            c2=privacy.c2,
            clip_norm=training.largest_norm,
            control=self.config.control,
            step_noise_multiplier=None if self.noise is None else self.noise.step_noise_multiplier,
            iterations=self.iterations,
            noise=None if self.noise is None else self.noise_brought,
            accounted=privacy.calibration == "accounted",
            releases=None if self.noise is None else self.releases_made,
        )

    def schedule(self) -> Schedule:
        """The schedule at the start of the run."""
        return self.traits.build(self.context)


@dataclass(frozen=True, eq=False)
class StatisticRun:
    """A statistic of a prelude, on the network of its run.

    Attributes:
        statistic: what is released.
        run: of the one interval that releases it, under noise before any account.
        columns: (features,) those that it is of; None for all.
    """

    statistic: Statistic
    run: RunSetup
    columns: NDArray[np.bool_] | None = None
