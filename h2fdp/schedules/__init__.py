"""Schedules: how long an interval is, when subnets aggregate, who takes part, with which step size; and faults."""

from h2fdp.schedules.adaptive import AdaptiveSchedule, Horizon
from h2fdp.schedules.ali_dpfl import AliSchedule
from h2fdp.schedules.ali_rules import ClosedFormRule, SearchRule
from h2fdp.schedules.budget import Budget
from h2fdp.schedules.faults import Faults
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.network import ControlledNetwork
from h2fdp.schedules.noise_decay import NoiseDecay
from h2fdp.schedules.observation import DeviceSecants, Measurements, Observation
from h2fdp.schedules.participation import draw_participants
from h2fdp.schedules.resource_budget import BudgetControl, ResourceBudgetSchedule
from h2fdp.schedules.rhythm import Rhythm
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.section import ControlSection, Estimates
from h2fdp.schedules.turnout import Points, Turnout, drawn_turnout, epochs_turnout, reached

__all__ = [
    "AdaptiveSchedule",
    "AliSchedule",
    "Budget",
    "BudgetControl",
    "ClosedFormRule",
    "ControlSection",
    "ControlledNetwork",
    "Decision",
    "DeviceSecants",
    "Estimates",
    "Faults",
    "FixedSchedule",
    "Horizon",
    "Measurements",
    "NoiseDecay",
    "Observation",
    "Points",
    "ResourceBudgetSchedule",
    "Rhythm",
    "Schedule",
    "SearchRule",
    "Turnout",
    "draw_participants",
    "drawn_turnout",
    "epochs_turnout",
    "reached",
]
