"""Schedules: how long an interval is, when aggregators aggregate, who takes part, with which step size."""

from h2fdp.schedules import buffered  # noqa: F401 - registers itself
from h2fdp.schedules.aggregation_times import AggregationTimes as AggregationTimes
from h2fdp.schedules.aggregation_times import draw_participants as draw_participants
from h2fdp.schedules.control_section import ControlSection as ControlSection
from h2fdp.schedules.control_section import Horizon as Horizon
from h2fdp.schedules.fixed import FixedSchedule as FixedSchedule
from h2fdp.schedules.h2fdp_controller import H2fdpController as H2fdpController
from h2fdp.schedules.measuring import MeasuringDevices as MeasuringDevices
from h2fdp.schedules.registry import OwnSchedule as OwnSchedule
from h2fdp.schedules.schedule import Decision as Decision
from h2fdp.schedules.schedule import IntervalObservation as IntervalObservation
from h2fdp.schedules.schedule import Schedule as Schedule
from h2fdp.schedules.traits import ScheduleContext as ScheduleContext
from h2fdp.schedules.traits import ScheduleTraits as ScheduleTraits
