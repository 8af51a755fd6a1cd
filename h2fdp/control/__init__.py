"""Schedules: how long an interval is, when subnets aggregate, who takes part, with which step size."""

from h2fdp.control.adaptive import AdaptiveSchedule, Horizon
from h2fdp.control.fixed import FixedSchedule
from h2fdp.control.network import ControlledNetwork
from h2fdp.control.observation import Measurements, Observation
from h2fdp.control.participation import draw_participants
from h2fdp.control.rhythm import Rhythm
from h2fdp.control.schedule import Decision, Schedule
from h2fdp.control.section import ControlSection, Estimates

__all__ = [
    "AdaptiveSchedule",
    "ControlSection",
    "ControlledNetwork",
    "Decision",
    "Estimates",
    "FixedSchedule",
    "Horizon",
    "Measurements",
    "Observation",
    "Rhythm",
    "Schedule",
    "draw_participants",
]
