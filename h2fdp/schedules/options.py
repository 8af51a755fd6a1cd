"""The options of a schedule in an experiment file, which state its traits too."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from h2fdp.config.fields import NonNegative, Options, Positive
from h2fdp.schedules.traits import Measured, ScheduleTraits
from h2fdp.theory import DriftConstants


class ScheduleOptions(Options, ScheduleTraits):
    """The options of one schedule: a subclass narrows `name` to its own, and has a field for each option."""


class DriftOptions(ScheduleOptions):
    """Options of schedules that plan with how far local steps drift apart.

    Attributes:
        lipschitz: rho, how fast each device's loss changes; null has devices measure it.
        smoothness: beta, how fast each device's gradient changes; null has devices measure it.
        divergence: delta (or xi), how far the devices' gradients lie from the global one; null has devices measure it.
    """

    lipschitz: NonNegative | None = None
    smoothness: Positive | None = None
    divergence: NonNegative | None = None

    @property
    def measures(self) -> Measured:
        return "secants" if self.drift is None else "nothing"

    @property
    def drift(self) -> DriftConstants | None:
        """The operator's constants; None has devices measure them."""
        if self.lipschitz is None or self.smoothness is None or self.divergence is None:
            return None
        return DriftConstants(self.lipschitz, self.smoothness, self.divergence)

    @model_validator(mode="after")
    def _all_or_none(self) -> Any:
        drift = [self.lipschitz, self.smoothness, self.divergence]
        if any(each is None for each in drift) and any(each is not None for each in drift):
            raise ValueError("expected all of lipschitz, smoothness and divergence, or none of them")
        return self
