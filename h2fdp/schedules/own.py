"""What a user's own schedule derives from."""

from __future__ import annotations

from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.schedule import Schedule
from h2fdp.schedules.traits import ScheduleTraits


class OwnSchedule(ScheduleTraits, Schedule):
    """A schedule that states its traits and decides, in one class; only `decide` has to be written.

    Options of the file are arguments of its `__init__`. Where it varies tau, `longest_interval` bounds it.

    >>> from h2fdp.schedules import Decision
    >>> class Halved(OwnSchedule):
    ...     def decide(self, interval, slot):
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

    @property
    def measures_secants(self) -> bool:
        """Whether its traits say so."""
        return self.measures == "secants"
