"""Schedules: how long an interval is, when subnets aggregate, who takes part, with which step size; and faults."""

from h2fdp.control.adaptive import AdaptiveSchedule, Horizon
from h2fdp.control.ali_dpfl import AliSchedule
from h2fdp.control.ali_rules import ClosedFormRule, SearchRule
from h2fdp.control.budget import Budget
from h2fdp.control.faults import Faults
from h2fdp.control.fixed import FixedSchedule
from h2fdp.control.network import ControlledNetwork
from h2fdp.control.noise_decay import NoiseDecay
from h2fdp.control.observation import DeviceSecants, Measurements, Observation
from h2fdp.control.participation import draw_participants
from h2fdp.control.resource_budget import BudgetControl, ResourceBudgetSchedule
from h2fdp.control.rhythm import Rhythm
from h2fdp.control.schedule import Decision, Schedule
from h2fdp.control.section import ControlSection, Estimates
from h2fdp.control.turnout import Points, Turnout, drawn_turnout, epochs_turnout, reached

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
