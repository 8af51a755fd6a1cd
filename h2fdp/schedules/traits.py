"""What the rest of an experiment must know of a schedule before it runs, how it is built, and its options in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from h2fdp.config.fields import Options
from h2fdp.errors import UserError
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import Horizon
from h2fdp.schedules.schedule import Schedule

Measured = Literal["nothing", "gradients", "secants"]


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
        measures: what devices measure for it: nothing; `gradients`, for beta, sigma, zeta and zeta_c as
            `control.estimates` says; or `secants`, see `DeviceSecants`, always raw.
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
    def measures(self) -> Measured:
        return "nothing"

    def measures_within(self, intervals: int, iterations: int | None) -> Measured:
        """What is measured in a run of this many intervals and, at most, local iterations."""
        return self.measures

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
