"""Schedules: how long an interval is, when subnets aggregate, who takes part, with which step size."""

from h2fdp.schedules.adaptive import AdaptiveSchedule, Horizon
from h2fdp.schedules.ali_dpfl import AliSchedule
from h2fdp.schedules.ali_rules import ClosedFormRule, SearchRule
from h2fdp.schedules.budget import Budget
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.network import ControlledNetwork
from h2fdp.schedules.noise_decay import NoiseDecay
from h2fdp.schedules.participation import draw_participants
from h2fdp.schedules.resource_budget import BudgetControl, ResourceBudgetSchedule
from h2fdp.schedules.rhythm import Rhythm
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.section import ControlSection, Estimates

__all__ = [
    "AdaptiveSchedule",
    "AliSchedule",
    "Budget",
    "BudgetControl",
    "ClosedFormRule",
    "ControlSection",
    "ControlledNetwork",
    "Decision",
    "Estimates",
    "FixedSchedule",
    "Horizon",
    "NoiseDecay",
    "ResourceBudgetSchedule",
    "Rhythm",
    "Schedule",
    "SearchRule",
    "draw_participants",
]
