"""What a schedule is built from: the run in plain values, without the parts that train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from h2fdp.costs import ExchangeSizes, NetworkCosts
from h2fdp.network import Topology
from h2fdp.schedules.aggregation_times import AggregationTimes, StepDecay, share_of
from h2fdp.schedules.control_section import ControlSection, Horizon
from h2fdp.schedules.privacy_gap import PrivacyTerms
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
        step_decay: how the step size of the experiment file falls over the intervals.
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
        """What the privacy gap follows from; gradients must be clipped."""
        assert self.clip_norm is not None, "the controller weighs costs against noise"
        rate = float(self.sampling_rates.max())
        return PrivacyTerms(self.parameters, rate, self.clip_norm, self.epsilon, self.delta, self.c2, self.c2)
