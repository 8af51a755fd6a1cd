"""From a checked experiment to the parts of a run: data on devices, model, noise, schedule, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from h2fdp.control import AdaptiveSchedule, ControlSection, Rhythm, Schedule
from h2fdp.control.schedule_section import ScheduleSection
from h2fdp.data import DeviceData, load
from h2fdp.data.pool import Pool, Request
from h2fdp.data.registry import read_pool
from h2fdp.data.unit_ball import within_unit_ball
from h2fdp.errors import UserError
from h2fdp.experiment.noise_setting import setting_of
from h2fdp.experiment.schedules import adaptive_schedule, schedule_of
from h2fdp.experiment.schema import ExperimentFile, horizon
from h2fdp.experiment.sections import FaultsSection
from h2fdp.models import Flat, build
from h2fdp.nodes import Cloud, IntervalPlan, SubnetPlan, Team
from h2fdp.privacy import OBSERVERS, Mechanism, Observer, Placement, placement_of
from h2fdp.radio import Failing, NetworkCosts, interval_cost
from h2fdp.radio.interval_cost import IntervalCost
from h2fdp.runtime import Blueprint
from h2fdp.runtime.blueprint import Measuring
from h2fdp.runtime.local_hosts import training_device
from h2fdp.runtime.step_time import fastest_engine
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import Clipping, chosen_engine
from h2fdp.training.epochs import steps_per_epoch
from h2fdp.training.objectives import objective_of
from h2fdp.training.server import server_update

DataSource = Callable[[Topology, Streams, Path | None], DeviceData]


@dataclass(frozen=True)
class Preparation:
    """The parts of one run, built but not started.

    Attributes:
        drawn: the topology as it was drawn for the seed.
        topology: the network that is simulated: a star of all devices where the method asks for one.
        initial: (M,) w(0).
        costs: of messages on the network's links.
        noise: None where the method adds none.
        factor: by which `calibration: accounted` multiplied the noises.
        iterations: R_c, the local iterations that the target allows each device; None where it sets no limit.
    """

    config: ExperimentFile
    drawn: Topology
    topology: Topology
    data: DeviceData
    blueprint: Blueprint
    initial: Tensor
    rhythm: Rhythm
    costs: NetworkCosts
    noise: Mechanism | None
    iterations: int | None = None
    factor: float = 1.0

    @property
    def placement(self) -> Placement:
        """Where noise is added."""
        return self.blueprint.noise_placement

    @property
    def leaks(self) -> bool:
        """Raw estimates go to the cloud: no epsilon says what this run reveals."""
        measuring = self.blueprint.measuring
        return self.noise is not None and (self.blueprint.probes or (measuring is not None and measuring.leaks))

    @property
    def step_noise_multiplier(self) -> float | None:
        """sigma of the noise on every local step (DP-SGD); None where there is none."""
        return None if self.noise is None else self.noise.step_noise_multiplier

    @property
    def budgets(self) -> Mapping[Observer, float]:
        """The epsilon of each observer that ends the run.

        Where the noise falls as the run goes on, or intervals are longer or shorter than it was made for, nothing but
        the account keeps to the target: then it is a budget of every observer that has none.
        """
        stated, schedule = self.config.privacy.budget, self.config.method.schedule.name
        free = schedule in ("noise-decay", "resource-budget")
        if self.noise is None or self.leaks or not free:
            return stated
        return dict.fromkeys(OBSERVERS, self.config.privacy.epsilon) | stated

    @property
    def without_faults(self) -> Preparation:
        """The same run in a world where nothing fails: what was planned."""
        return replace(self, config=self.config.model_copy(update={"faults": FaultsSection()}))

    @property
    def most_iterations(self) -> int | None:
        """R_c, by the target or, where that is fewer, by the schedule's own number; None where neither says."""
        stated = self.config.method.schedule.iterations
        return min((each for each in (self.iterations, stated) if each is not None), default=None)

    @property
    def exhausted(self) -> Preparation:
        """The same devices taking every local iteration that there may be, one an interval."""
        config, iterations = self.config, self.most_iterations
        assert iterations is not None, "this schedule spends iterations"
        method = config.method.model_copy(update={"schedule": ScheduleSection(name="fixed")})
        training = config.training.model_copy(update={"intervals": iterations, "local_steps": 1})
        return replace(self, config=config.model_copy(update={"method": method, "training": training}))

    def cloud(self, edges: Team) -> Cloud:
        """The cloud at the start of the run."""
        method = self.config.method
        return Cloud(
            self.initial,
            self.blueprint.streams,
            self.blueprint.facts(),
            edges,
            self.schedule(),
            self.rhythm,
            self.noise,
            self.config.training.weights,
            "released" if self.blueprint.measuring is None else self.config.control.estimates,
            self.config.faults.faults(),
            server_update(method.server, method.upcycle, size=self.initial.numel(), alpha=method.objective.alpha),
            self.blueprint.objective.memory is not None,
            self.config.training.local_epochs,
            self.spent,
        )

    @property
    def local_steps(self) -> int:
        """tau_0; where devices train in epochs, the steps of the one that takes most."""
        return _local_steps(self.config, self.data, self.blueprint.rates)

    def schedule(self) -> Schedule:
        """The schedule at the start of the run."""
        return schedule_of(self)

    def adaptive_schedule(self, section: ControlSection) -> AdaptiveSchedule:
        """Algorithm 1 under these settings, at the start of the run."""
        return adaptive_schedule(self, section)

    def cost(self, plan: IntervalPlan) -> IntervalCost:
        """What an interval costs under the fading that it draws."""
        numbers = {subnet.name: number for number, subnet in enumerate(self.topology.subnets)}
        parts = plan.subnets | plan.lost
        return interval_cost(
            self.costs.drawn(plan.interval),
            self.topology,
            [numbers[name] for name in parts],
            [subnet.rows for subnet in parts.values()],
            [subnet.segments for subnet in parts.values()],
            [_failing(subnet) for subnet in parts.values()],
        )

    def spent(self, plan: IntervalPlan) -> dict[str, float]:
        """The same by the names of the metrics' columns. The slots of an interval pass also when nobody is there."""
        cost = self.cost(plan)
        slots = plan.decision.local_steps * self.topology.compute.seconds_per_step
        return {"energy_j": cost.energy_j, "delay_s": cost.delay_s, "clock_s": max(cost.clock_s, slots)}


def _failing(subnet: SubnetPlan) -> Failing | None:
    return None if subnet.turnout is None else Failing(subnet.turnout.steps > 0, subnet.steps_computed)


def prepare(
    config: ExperimentFile,
    topology: Topology,
    data_root: Path | None = None,
    data_source: DataSource | None = None,
    model: Callable[[], nn.Module] | None = None,
) -> Preparation:
    """Load data, build the model, work out the noise.

    Args:
        topology: as drawn for the experiment's seed.
        data_source, model: a user's own data and model, instead of those that the configuration names.

    Data are spread over the topology as it was drawn, also for a star, so that methods compare on equal devices.
    """
    streams = Streams(config.seed)
    star = config.method.topology == "star"
    network = topology.as_star() if star else topology
    placement = placement_of(config.method.privacy)
    if model is not None and placement.models is not None:
        raise UserError(
            f"expected {' or '.join(sorted(placement.models))} under this privacy, found a model of your own",
            key="model",
        )
    data = (data_source or configured_data(config))(topology, streams, data_root)
    if placement.input_norm is not None:
        data = within_unit_ball(data, placement.input_norm)
    options = config.model.options() if model is None else None
    module = partial(
        build, model or config.model.name, data.shape, data.classes, options, streams.key("cloud", "model")
    )
    initial = module()
    device = training_device(config.runtime)
    training = config.training
    norm = None if placement.clips == "update" else training.clip_norm
    blueprint = Blueprint(
        streams,
        network,
        data,
        module,
        chosen_engine(initial, device) if config.runtime.engine in ("auto", "fastest") else config.runtime.engine,
        objective_of(config.method.objective),
        None if norm is None else Clipping(norm, training.clip_scope),
        # An order of all records amplifies no more than fixed batches do.
        "poisson" if training.sampling == "poisson" else "fixed",
        _sampling_rates(config, data),
        placement,
        star,
        _measuring(config),
        device,
        training.momentum,
        training.local_epochs,
        config.method.schedule.measures,
        training.clip_norm,
    )
    rhythm = Rhythm() if star else Rhythm(training.aggregate_every, training.aggregations_per_interval)
    vector = Flat(initial).to_vector(initial)
    if config.runtime.engine == "fastest":
        blueprint = replace(blueprint, engine=fastest_engine(blueprint, vector))
    costs = NetworkCosts(network, vector.numel(), streams)
    run = Preparation(config, topology, network, data, blueprint, vector, rhythm, costs, None)
    return replace(run, noise=placement.mechanism(setting_of(run, initial))) if placement.private else run


def _local_steps(config: ExperimentFile, data: DeviceData, rates: np.ndarray) -> int:
    training = config.training
    if training.local_epochs is None:
        assert training.local_steps is not None, "steps or epochs"
        return training.local_steps
    return training.local_epochs * int(steps_per_epoch(data.sizes, rates).max())


def _measuring(config: ExperimentFile) -> Measuring | None:
    """What the nodes measure for the controller, if anything: beta, sigma and zeta_c up to stated ranges."""
    control, training = config.control, config.training
    if not control.enabled or control.estimates == "released":
        return None
    assert training.clip_norm is not None
    return Measuring(
        (horizon(config).largest_beta(control), 2 * training.clip_norm, 2 * training.clip_norm),
        leaks=control.estimates == "oracle",
    )


def _sampling_rates(config: ExperimentFile, data: DeviceData) -> np.ndarray:
    """(I,) q_i = batch_size / D_i, set before the run: it does not move with a neighbouring data set."""
    training = config.training
    if training.sampling_rate is not None:
        rates = np.full(len(data.sizes), training.sampling_rate)
    else:
        assert training.batch_size is not None
        rates = np.minimum(1.0, training.batch_size / data.sizes)
    if training.sampling == "poisson":
        return rates
    # A batch of fixed size holds whole records: the rate is the one that is really drawn.
    return np.asarray(np.clip(np.rint(rates * data.sizes), 1, data.sizes) / data.sizes)


def configured_data(config: ExperimentFile, pools: Callable[[Request], Pool] = read_pool) -> DataSource:
    """The data of a configuration; `pools` see `load`."""

    def source(network: Topology, streams: Streams, root: Path | None) -> DeviceData:
        groups = [(subnet.name, subnet.size) for subnet in network.subnets]
        return load(config.data, network.devices, streams, root, groups=groups, pools=pools)

    return source
