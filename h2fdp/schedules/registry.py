"""The registry of schedules: a new one is a file of this package and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.errors import UserError
from h2fdp.schedules.buffered import BufferedOptions
from h2fdp.schedules.control_section import ControlSection
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.h2fdp_controller import H2fdpOptions
from h2fdp.schedules.own import CheckedSchedule
from h2fdp.schedules.traits import ScheduleOptions, ScheduleTraits
from h2fdp.schedules.utility import UtilityOptions

SCHEDULES: Choices[ScheduleOptions] = Choices(
    OwnKind("a schedule, derived from `h2fdp.schedules.OwnSchedule`", ("choose", "build"))
)
for _options in (FixedOptions, UtilityOptions, BufferedOptions, H2fdpOptions):
    SCHEDULES.register(_options)

if TYPE_CHECKING:
    ScheduleSection = ScheduleOptions | OwnPart
else:
    ScheduleSection = SCHEDULES.section()


def chosen(section: ScheduleOptions | OwnPart) -> ScheduleTraits:
    """What is known before a run of the schedule that a `method.schedule` names, and how it is built.

    Raises:
        UserError: a user's own schedule that cannot be made.
    """
    if isinstance(section, OwnPart):
        return cast(ScheduleTraits, CheckedSchedule(section.make(), section.origin))
    return section


def reconciled(
    schedule: ScheduleOptions | OwnPart, control: ControlSection
) -> tuple[ScheduleOptions | OwnPart, ControlSection]:
    """`control.enabled` and the schedule `h2fdp` are two ways to say the same: here either one implies the other.

    Raises:
        UserError: they contradict each other.
    """
    adaptive, traits = H2fdpOptions(), chosen(schedule)
    controlled = traits.controlled
    if controlled and "enabled" in control.model_fields_set and not control.enabled:
        text = f"the method's schedule is {adaptive.name}; expected true, or a method with schedule fixed"
        raise UserError(text, key="control.enabled")
    if not controlled and not control.enabled:
        return schedule, control
    if not controlled and not traits.as_stated:
        text = f"the method's schedule is {schedule.name}; expected false, or a method with schedule {adaptive.name}"
        raise UserError(text, key="control.enabled")
    return schedule if controlled else adaptive, control.model_copy(update={"enabled": True})
