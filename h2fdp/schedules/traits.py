"""The facts that a schedule knows of its run before the first interval, what the run knows of it, and its options in
a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from h2fdp.config.fields import Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes
from h2fdp.errors import UserError
from h2fdp.network import Topology
from h2fdp.network.devices import Integers
from h2fdp.schedules.aggregation_times import AggregationTimes, StepDecay, share_of
from h2fdp.schedules.control_section import ControlSection, Horizon
from h2fdp.schedules.measuring import Measure
from h2fdp.schedules.prices import ControlledNetwork
from h2fdp.schedules.problem import PrivacyTerms
from h2fdp.schedules.schedule import Schedule
from h2fdp.streams import Streams


@dataclass(frozen=True, kw_only=True)
class ScheduleContext:
    """A run as its schedule sees it before the first interval.

    Attributes:
        topology: the simulated network of N subnets.
        costs: of messages on its links.
        streams: from which participants and fading are drawn.
        aggregation_times: when edge servers aggregate within an interval.
        one_noise: (N,) whether one noise covers the sum of a subnet, not each upload its own.
        exchanges: (N,) what the devices of a subnet exchange for secure sums; None where it has none.
        intervals: K_g, the most that there may be.
        local_steps: tau_0 of the experiment file.
        step_size: eta, or gamma where it falls.
        step_decay, warm_up: how the step size of the experiment file falls over the intervals, and rises before.
        share: of each subnet's devices that take part.
        turns: intervals from one turn of a device to its next one.
        regrouped: the groups that take turns change, see `DeviceTurns`.
        budget_decay: how the shares of intervals in the privacy budget fall.
        control: the `control:` section.
        parameters: M, coordinates of the model.
        sampling_rates, records: (I,) q_i and D_i of the devices, subnet after subnet.
        clip_norm: None where nothing is clipped.
        epsilon, delta, c2: the target, and the paper's constant (15), which is v2, too.
        step_noise_multiplier: sigma of the noise on every local step (DP-SGD); None where there is none.
        noise: tau -> (N,) each subnet's part of the noise variance on the global model after an interval of tau steps
            of size 1 in which `participation` devices take part, before the noise is calibrated to an account; None
            where there is none.
        releases: tau -> the most releases about one device in an interval of tau steps, to one observer; None where
            there is no noise.
        accounted: whether the noise is calibrated to an account, so that the formula's constants say nothing of it.
        iterations: R_c, the local iterations that the target allows each device; None where it sets no limit.
    """

    topology: Topology
    costs: NetworkCosts
    streams: Streams
    aggregation_times: AggregationTimes
    one_noise: np.ndarray
    exchanges: Sequence[ExchangeSizes | None]
    intervals: int
    local_steps: int
    step_size: float
    step_decay: StepDecay
    warm_up: int
    share: float
    parameters: int
    sampling_rates: np.ndarray
    records: np.ndarray
    epsilon: float
    delta: float
    c2: float
    turns: int = 1
    regrouped: bool = False
    budget_decay: StepDecay = "none"
    clip_norm: float | None = None
    control: ControlSection = field(default_factory=ControlSection)
    step_noise_multiplier: float | None = None
    iterations: int | None = None
    noise: Callable[[int], np.ndarray] | None = None
    accounted: bool = False
    releases: Callable[[int], int] | None = None

    @property
    def sizes(self) -> np.ndarray:
        """(N,) s_c."""
        return self.topology.sizes

    @cached_property
    def participation(self) -> np.ndarray:
        """(N,) how many devices of each subnet take part: its share, rounded, at least one."""
        return share_of(self.sizes, self.share)

    @property
    def horizon(self) -> Horizon:
        """K_g, T, tau_0 and gamma of Algorithm 1."""
        return Horizon.planned(self.intervals, self.local_steps, self.step_size, self.control)

    @property
    def privacy_terms(self) -> PrivacyTerms:
        """The terms of the privacy gap; gradients must be clipped."""
        assert self.clip_norm is not None, "the controller weighs costs against noise"
        rate = float(self.sampling_rates.max())
        return PrivacyTerms(self.parameters, rate, self.clip_norm, self.epsilon, self.delta, self.c2, self.c2)

    def network(self, limits: Integers) -> ControlledNetwork:
        """The network as controllers see it.

        Args:
            limits: (N,) the most devices of each subnet that may take part.
        """
        return ControlledNetwork(self.topology, limits, self.one_noise.astype(np.float64), self.exchanges)


class ScheduleTraits(ABC):
    """A schedule before its run. The options of each schedule derive from it, and so does a user's `OwnSchedule`.

    Attributes:
        as_stated: it decides nothing that the experiment file does not say, so the controller may take its place.
        varies_tau: intervals need not have the file's local steps; `longest_interval` is then stated, and the noise
            covers it.
        fixed_step_size: it plans with one step size, so that `training.step_decay` is none.
        allows_epochs: intervals may be counted in `training.local_epochs`.
        foreseen: what every interval will be is known before the run.
        reads_releases: its decisions on steps, devices and noise depend on what the run releases: then nothing bounds
            the releases before the run, and a privacy filter bounds them interval by interval. Where they do not, the
            schedule's own forecast is what it will do. An own schedule that does not say: see `CheckedSchedule`.
        scales_noise: intervals may have another share of the noise than planned (`Decision.noise_factor`).
        ends_by_account: nothing but the account keeps the run to its target, which is then every observer's budget.
        counts_iterations: it spends R_c local iterations, however they are cut into intervals.
        keeps_to_iterations: it ends by itself after the R_c local iterations that the target allows; where another one
            is limited by R_c, the account ends the run.
        controlled: it follows the `control:` section.
        buffers: aggregators do not wait for all uploads, so that some begin with older models.
        measures: what devices measure for it after each interval and send raw (`IntervalObservation.measured`), as a
            function of `MeasuringDevices`; None for nothing. No account covers such a run.
    """

    as_stated: ClassVar[bool] = False
    varies_tau: ClassVar[bool] = False
    fixed_step_size: ClassVar[bool] = False
    allows_epochs: ClassVar[bool] = False
    foreseen: ClassVar[bool] = False
    reads_releases: ClassVar[bool] = True
    scales_noise: ClassVar[bool] = False
    ends_by_account: ClassVar[bool] = False
    counts_iterations: ClassVar[bool] = False
    keeps_to_iterations: ClassVar[bool] = False
    controlled: ClassVar[bool] = False

    @property
    def buffers(self) -> bool:
        return False

    @property
    def measures(self) -> Measure | None:
        return None

    def measures_within(self, intervals: int, iterations: int | None) -> Measure | None:
        """The measuring in a run of this many intervals and, at most, local iterations."""
        return self.measures

    def problems(self, clips: str, calibration: str) -> Iterable[tuple[str, str]]:
        """(key, what is wrong and would be right) under noise whose placement clips this and is calibrated so."""
        return ()

    def longest_interval(self, horizon: Horizon) -> int:
        """The most local steps of any interval.

        Raises:
            UserError: a schedule that varies tau and does not say.
        """
        if self.varies_tau:
            text = f"{type(self).__name__} varies tau; expected a method `longest_interval(horizon)` that bounds it"
            raise UserError(text, key="method.schedule")
        return horizon.local_steps

    def largest_step_size(self, step_size: float, local_steps: int | None, intervals: int) -> float:
        """The largest eta_k that it can choose, `step_size` being the file's."""
        return step_size

    def lengths(self, horizon: Horizon) -> range:
        """The local steps that an interval can have, where the file's are tau_0."""
        longest = self.longest_interval(horizon)
        return range(1 if self.varies_tau else longest, longest + 1)

    def steps_to_cover(self, horizon: Horizon) -> int:
        """The local steps of each interval that noise on every step must last for: those of the longest interval, or
        the file's where something else ends the run in time."""
        ends = self.counts_iterations or self.ends_by_account or self.controlled
        return horizon.local_steps if ends else self.longest_interval(horizon)

    @abstractmethod
    def build(self, context: ScheduleContext) -> Schedule:
        """The schedule at the start of a run.

        Raises:
            UserError: a run that it cannot decide about.
        """


class ScheduleOptions(Options, ScheduleTraits):
    """The options of one schedule: a subclass narrows `name` to its own, and has a field for each option."""

    @property
    def variant(self) -> str:
        """The words for options that make another method of it, as how much aggregators wait; empty without any."""
        return ""


SCHEDULES: Choices[ScheduleOptions] = Choices(
    OwnKind("a schedule, derived from `h2fdp.schedules.OwnSchedule`", ("choose", "build")),
    instead={
        "utility": "is gone; state its options of a part of your own, `FOLDER/utility:Utility` (experiments/parts)"
    },
)
