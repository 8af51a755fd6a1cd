"""Schedules: how long an interval is, when subnets aggregate, who takes part, with which step size."""

from h2fdp.control.fixed import FixedSchedule
from h2fdp.control.observation import Measurements, Observation
from h2fdp.control.participation import draw_participants
from h2fdp.control.rhythm import Rhythm
from h2fdp.control.schedule import Decision, Schedule

__all__ = [
    "Decision",
    "FixedSchedule",
    "Measurements",
    "Observation",
    "Rhythm",
    "Schedule",
    "draw_participants",
]
