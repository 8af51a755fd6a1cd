"""The schema of `method.schedule`: who decides the coming interval, and what he is told in advance."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError, model_validator

from h2fdp.config.choice import Choice
from h2fdp.config.fields import Count, Expect, Magnitude, NonNegative, Positive, Share
from h2fdp.errors import UserError
from h2fdp.schedules.control_section import ControlSection
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.h2fdp_controller import H2fdpOptions
from h2fdp.schedules.options import ScheduleOptions
from h2fdp.schedules.registry import SCHEDULES

# A default of None means: measured by the devices (constants of the losses), taken from the rest of the file (R_s, R_c,
# prices), or unlimited (budgets).
_ALI = {"curvature": None, "heterogeneity": None, "curvature_from": "parameters", "form": "program", "iterations": None}
_DRIFT = {"lipschitz": None, "smoothness": None, "divergence": None}
_BUDGETS = {"joules": None, "seconds": None, "units": None, "step_cost": None, "aggregation_cost": None}
_SEARCH = {"control_parameter": 0.025, "growth": 10.0, "longest": 100}
_DECAY = {"factor": 0.9, "patience": 2, "least": 0.1}

Fraction = Annotated[float, Field(gt=0, lt=1), Expect("a number above 0 and below 1")]
Growth = Annotated[float, Field(ge=1, le=1e6), Expect("a number from 1 to 1e6")]


class ScheduleSection(Choice):
    """A schedule with its parameters; a word alone stands for its defaults.

    Attributes:
        curvature, heterogeneity: `ali-dpfl`'s mu and Gamma; null has devices measure them.
        curvature_from: measure mu by `gradients`, as ALI-DPFL's paper, or by `parameters`, as its program.
        form: 2 + 1/T as in the `paper`, or 2 + 2/T as in the `program`.
        iterations: R_c; null is what the privacy budget allows.
        lipschitz, smoothness, divergence: rho, beta and delta (or xi); null has devices measure them.
        nearness, least_gap: `ali-dpfl-v1`'s omega and lambda.
        joules, seconds, units: budgets of `resource-budget`; seconds are those of the simulated clock.
        step_cost, aggregation_cost: c and b of `units`.
        control_parameter, growth, longest: phi, gamma and tau_max.
        factor, patience, least: of `noise-decay`, which multiplies the noise by `factor` each time the loss has fallen
            for `patience` intervals in a row, down to `least` of it.

    >>> ScheduleSection.model_validate("noise-decay").options()
    {'factor': 0.9, 'patience': 2, 'least': 0.1}
    """

    choices: ClassVar = {
        "fixed": {},
        "h2fdp": {},
        "ali-dpfl": _ALI,
        "ali-dpfl-v1": {"nearness": 1.0, "least_gap": 1.0, "iterations": None, **_DRIFT},
        "resource-budget": {**_BUDGETS, **_SEARCH, **_DRIFT},
        "noise-decay": _DECAY,
    }

    curvature: Positive | None = None
    heterogeneity: NonNegative | None = None
    curvature_from: Annotated[Literal["gradients", "parameters"], Expect("one of gradients, parameters")] | None = None
    form: Annotated[Literal["paper", "program"], Expect("one of paper, program")] | None = None
    iterations: Count | None = None
    nearness: Magnitude | None = None
    least_gap: Magnitude | None = None
    lipschitz: NonNegative | None = None
    smoothness: Positive | None = None
    divergence: NonNegative | None = None
    joules: Positive | None = None
    seconds: Positive | None = None
    units: Positive | None = None
    step_cost: NonNegative | None = None
    aggregation_cost: NonNegative | None = None
    control_parameter: Magnitude | None = None
    growth: Growth | None = None
    longest: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] | None = None
    factor: Fraction | None = None
    patience: Count | None = None
    least: Share | None = None

    @model_validator(mode="after")
    def _agree(self) -> ScheduleSection:
        try:
            chosen(self)
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self


def chosen(section: ScheduleSection) -> ScheduleOptions:
    """What is known of the schedule before a run."""
    return SCHEDULES[section.name].model_validate({"name": section.name, **section.options()})


def reconciled(schedule: ScheduleSection, control: ControlSection) -> tuple[ScheduleSection, ControlSection]:
    """`control.enabled` and the schedule `h2fdp` are two ways to say the same: here either one implies the other.

    Raises:
        UserError: they contradict each other.
    """
    adaptive = H2fdpOptions().name
    traits = chosen(schedule)
    if traits.controlled and "enabled" in control.model_fields_set and not control.enabled:
        text = f"the method's schedule is {adaptive}; expected true, or a method with schedule fixed"
        raise UserError(text, key="control.enabled")
    if not traits.controlled and not control.enabled:
        return schedule, control
    if not traits.controlled and schedule.name != FixedOptions().name:
        text = f"the method's schedule is {schedule.name}; expected false, or a method with schedule {adaptive}"
        raise UserError(text, key="control.enabled")
    return ScheduleSection(name=adaptive), control.model_copy(update={"enabled": True})
