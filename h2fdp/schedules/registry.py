"""All schedules by name: a new one is a file of this room and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from h2fdp.schedules.ali_dpfl import AliFirstOptions, AliOptions
from h2fdp.schedules.fixed import FixedOptions
from h2fdp.schedules.h2fdp_controller import H2fdpOptions
from h2fdp.schedules.noise_decay import NoiseDecayOptions
from h2fdp.schedules.options import ScheduleOptions
from h2fdp.schedules.resource_budget import ResourceBudgetOptions

_ALL: tuple[type[ScheduleOptions], ...] = (
    FixedOptions,
    H2fdpOptions,
    AliOptions,
    AliFirstOptions,
    ResourceBudgetOptions,
    NoiseDecayOptions,
)
SCHEDULES: Mapping[str, type[ScheduleOptions]] = MappingProxyType(
    {options.model_fields["name"].default: options for options in _ALL}
)
