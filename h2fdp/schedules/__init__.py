"""Schedules: how long an interval is, when aggregators aggregate, who takes part, with which step size."""

from h2fdp.schedules.aggregation_times import AggregationTimes
from h2fdp.schedules.ali_dpfl import AliSchedule, ClosedFormRule, SearchRule
from h2fdp.schedules.client_sampling import draw_participants
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import ControlSection, Estimates, Horizon
from h2fdp.schedules.feedback import DeviceSecants, IntervalObservation, Measurements
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.h2fdp_controller import H2fdpController
from h2fdp.schedules.noise_decay import NoiseDecay
from h2fdp.schedules.own import OwnSchedule
from h2fdp.schedules.problem import ControlledNetwork
from h2fdp.schedules.resource_budget import BudgetControl, ResourceBudgetSchedule
from h2fdp.schedules.resource_prices import ResourceBudget
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import ScheduleTraits

__all__ = [
    "AggregationTimes",
    "AliSchedule",
    "BudgetControl",
    "ClosedFormRule",
    "ControlSection",
    "ControlledNetwork",
    "Decision",
    "DeviceSecants",
    "Estimates",
    "FixedSchedule",
    "H2fdpController",
    "Horizon",
    "IntervalObservation",
    "Measurements",
    "NoiseDecay",
    "OwnSchedule",
    "ResourceBudget",
    "ResourceBudgetSchedule",
    "Schedule",
    "ScheduleContext",
    "ScheduleTraits",
    "SearchRule",
    "draw_participants",
]
