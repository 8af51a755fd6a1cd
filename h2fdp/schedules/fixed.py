"""The schedule of Algorithm 2: everything fixed in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from h2fdp.schedules.aggregation_times import DeviceTurns, StepDecay, decayed, noise_of_share, share_of
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import SCHEDULES, ScheduleContext, ScheduleOptions


@dataclass(frozen=True)
class FixedSchedule(Schedule):
    """A schedule of one tau and one share of devices for all intervals; the step size may fall.

    Attributes:
        intervals: K_g, those that are planned.
        sizes: (N,) s_c.
        share: of each subnet's devices; a subnet sends at least one.
        turns: b, intervals from one turn of a device to its next one, see `DeviceTurns`.
        regrouped: see there.
        budget: how the shares of intervals in the privacy budget fall: by turns, so that devices are served alike.
        last_slot: where training ends, inside an interval if need be; None: with the last interval.
        warm_up: intervals before the first whole step size, to which it rises in equal parts.
    """

    local_steps: int
    step_size: float
    decay: StepDecay
    intervals: int
    sizes: np.ndarray
    share: float = 1.0
    turns: int = 1
    regrouped: bool = False
    budget: StepDecay = "none"
    last_slot: int | None = None
    warm_up: int = 0

    def alike(self, interval: int) -> int:
        """The intervals alike, see `Schedule.alike`: those of one level of noise; the last interval may be shorter."""
        if self.last_slot is not None or self.turns > 1:
            return 1
        level = noise_of_share(self.budget, interval, self.intervals)
        later = range(interval + 1, self.intervals) if self.budget != "none" else ()
        others = (each for each in later if noise_of_share(self.budget, each, self.intervals) != level)
        return next(others, self.intervals) - interval

    def ends(self, slot: int) -> bool:
        return self.last_slot is not None and slot >= self.last_slot

    def decide(self, interval: int, slot: int) -> Decision:
        left = self.local_steps if self.last_slot is None else self.last_slot - slot
        falls = max(0, interval - self.warm_up), self.intervals - self.warm_up
        step_size = decayed(self.step_size, self.decay, *falls) * min(1.0, (interval + 1) / (self.warm_up + 1))
        steps, turns = min(self.local_steps, left), DeviceTurns(self.turns, self.intervals, self.regrouped)
        factor = noise_of_share(self.budget, interval // turns.every, turns.most)
        if self.turns == 1:
            return Decision(steps, step_size, share_of(self.sizes, self.share), noise_factor=factor)
        rows = [turns.rows(interval, size) for size in self.sizes.tolist()]
        return Decision(steps, step_size, np.array(list(map(len, rows))), noise_factor=factor, devices=rows)

    @classmethod
    def of(cls, context: ScheduleContext, last_slot: int | None = None) -> FixedSchedule:
        """The schedule of the experiment file."""
        return cls(
            context.local_steps,
            context.step_size,
            context.step_decay,
            context.intervals,
            context.sizes,
            context.share,
            context.turns,
            context.regrouped,
            context.budget_decay,
            last_slot,
            context.warm_up,
        )


@SCHEDULES.register
class FixedOptions(ScheduleOptions):
    """`fixed` has no options; it ends early where the target allows fewer local iterations than are planned."""

    name: Literal["fixed"] = "fixed"
    as_stated: ClassVar[bool] = True
    allows_epochs: ClassVar[bool] = True
    foreseen: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False
    keeps_to_iterations: ClassVar[bool] = True

    def build(self, context: ScheduleContext) -> FixedSchedule:
        allowed = context.iterations
        enough = allowed is None or allowed >= context.intervals * context.local_steps
        return FixedSchedule.of(context, None if enough else allowed)
