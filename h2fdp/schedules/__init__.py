"""Schedules: how long an interval is, when aggregators aggregate, who takes part, with which step size."""

from h2fdp.schedules.aggregation_times import AggregationTimes, draw_participants
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import ControlSection, Horizon
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.h2fdp_controller import H2fdpController
from h2fdp.schedules.own import OwnSchedule
from h2fdp.schedules.problem import ControlledNetwork
from h2fdp.schedules.schedule import Decision, DeviceSecants, IntervalObservation, Measurements, Schedule
from h2fdp.schedules.traits import ScheduleTraits

__all__ = [
    "AggregationTimes",
    "ControlSection",
    "ControlledNetwork",
    "Decision",
    "DeviceSecants",
    "FixedSchedule",
    "H2fdpController",
    "Horizon",
    "IntervalObservation",
    "Measurements",
    "OwnSchedule",
    "Schedule",
    "ScheduleContext",
    "ScheduleTraits",
    "draw_participants",
]
