"""What a user's own schedule derives from."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from h2fdp.errors import UserError
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import ScheduleTraits


class OwnSchedule(ScheduleTraits, Schedule):
    """A schedule that states its traits and decides, in one class; only `choose` has to be written.

    Options in the file are arguments of its `__init__`. Where it varies tau, `longest_interval` bounds it: the noise is
    made for that many local steps, and no decision may exceed it.

    >>> class Halved(OwnSchedule):
    ...     def choose(self, interval, slot):
    ...         step_size = self.context.step_size / 2**interval
    ...         return Decision(self.context.local_steps, step_size, self.context.participation)
    >>> Halved().varies_tau, Halved().measures
    (False, 'nothing')
    """

    context: ScheduleContext

    def build(self, context: ScheduleContext) -> Schedule:
        """The same object, with the run's context at hand."""
        self.context = context
        return self

    @abstractmethod
    def choose(self, interval: int, slot: int) -> Decision:
        """The decision for `interval`, counted from 0, which begins at `slot`; the same when asked again."""

    def decide(self, interval: int, slot: int) -> Decision:
        """What was chosen, within what the noise was made for.

        Raises:
            UserError: an interval, a step size or a participation outside of it.
        """
        decision, context = self.choose(interval, slot), self.context
        horizon = context.horizon
        longest = self.longest_interval(horizon)
        if not 1 <= decision.local_steps <= longest:
            raise self._wrong(f"expected 1 to {longest} local steps, found {decision.local_steps}", interval)
        largest = self.largest_step_size(context.step_size, context.local_steps, context.intervals)
        if not 0 < decision.step_size <= largest:
            text = f"expected a step size above 0 and at most {largest:g}, found {decision.step_size:g}"
            raise self._wrong(text, interval)
        counts = np.asarray(decision.participation)
        if counts.shape != context.sizes.shape or (counts < 0).any() or (counts > context.sizes).any():
            raise self._wrong(f"expected devices within {context.sizes.tolist()}, found {counts.tolist()}", interval)
        return decision

    @property
    def measures_secants(self) -> bool:
        """As its traits state."""
        return self.measures == "secants"

    def _wrong(self, text: str, interval: int) -> UserError:
        return UserError(f"{type(self).__name__} decides about interval {interval + 1}: {text}", key="method.schedule")
