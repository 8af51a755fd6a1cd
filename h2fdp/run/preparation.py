"""The parts of one run - data on devices, model, noise, schedule, nodes - built but not started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from h2fdp.data import DeviceData
from h2fdp.experiment.schema import ExperimentFile
from h2fdp.experiment.sections import FaultsSection
from h2fdp.privacy import OBSERVERS, Mechanism, Observer, Placement
from h2fdp.protocol import Cloud, IntervalPlan, Plan, Planner, Team
from h2fdp.radio import Failing, NetworkCosts, interval_cost
from h2fdp.radio.interval_cost import IntervalCost
from h2fdp.run.schedules import adaptive_schedule, schedule_of
from h2fdp.runtime import Blueprint
from h2fdp.schedules import AdaptiveSchedule, ControlSection, Rhythm, Schedule
from h2fdp.schedules.schedule_section import ScheduleSection
from h2fdp.topology import Topology
from h2fdp.training.epochs import steps_per_epoch
from h2fdp.training.server import server_update


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
        return self.noise is not None and (self.probes or (measuring is not None and measuring.leaks))

    @property
    def steering_loss(self) -> str:
        """The metrics column by which a schedule judges models.

        That of the validation split where there is one; it is held out of devices' records, though, and under noise
        nothing may depend on these outside the account: then it is the test data's.
        """
        split = self.data.validation is not None and self.noise is None
        return "validation_loss" if split else "loss"

    @property
    def probes(self) -> bool:
        """Whether devices measure constants of their losses for the schedule: not for ALI-DPFL with rounds enough for
        all iterations, where tau is 1 whatever they are (Lemma 1)."""
        schedule, iterations = self.config.method.schedule, self.most_iterations
        abound = iterations is not None and self.config.training.intervals >= iterations
        return self.blueprint.probes and not (schedule.name.startswith("ali-dpfl") and abound)

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
        config, method, schedule = self.config, self.config.method, self.schedule()
        estimates = "released" if self.blueprint.measuring is None else config.control.estimates
        planner = Planner(
            self.blueprint.streams,
            tuple(self.blueprint.facts()),
            self.rhythm,
            self.noise,
            config.training.weights,
            config.faults.faults(),
            config.training.local_epochs,
            measures=schedule.observes and estimates != "released",
            leaks=estimates == "oracle",
        )
        server = server_update(method.server, method.upcycle, size=self.initial.numel(), alpha=method.objective.alpha)
        remembers = self.blueprint.objective.memory is not None
        return Cloud(self.initial, planner, edges, schedule, server, remembers, self.spent)

    @property
    def local_steps(self) -> int:
        """tau_0; where devices train in epochs, the steps of the one that takes most."""
        training = self.config.training
        if training.local_epochs is None:
            assert training.local_steps is not None, "steps or epochs"
            return training.local_steps
        return training.local_epochs * int(steps_per_epoch(self.data.sizes, self.blueprint.rates).max())

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


def _failing(subnet: Plan) -> Failing | None:
    return None if subnet.turnout is None else Failing(subnet.turnout.steps > 0, subnet.steps_computed)
