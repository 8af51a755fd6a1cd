"""Noise that falls with the loss, around any other schedule (Adap DP-FL: Fu et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from h2fdp.config.fields import Count, Expect, Share
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.feedback import IntervalObservation
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.ranges import require, require_count
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import ScheduleOptions

Fraction = Annotated[float, Field(gt=0, lt=1), Expect("a number above 0 and below 1")]


class NoiseDecay(Schedule):
    """The schedule `inner`, with less noise once the loss has fallen for some rounds in a row.

    After `patience` rounds in each of which the loss was below that of the round before, the noise is multiplied by
    `factor`, and the count restarts. It never rises again. The loss is that of the global model on public records.

    Args:
        factor: above 0 and below 1.
        patience: rounds.
        least: how small a share of the noise may become, above 0 and at most 1.

    Raises:
        UserError: a number out of its range.
    """

    scores: ClassVar[bool] = True

    def __init__(self, inner: Schedule, factor: float, patience: int, least: float) -> None:
        require(0 < factor < 1, "factor", factor, "a number above 0 and below 1")
        require(0 < least <= 1, "least", least, "a number above 0 and at most 1")
        require_count(patience, 1, "patience")
        self._inner = inner
        self._factor = factor
        self._patience = patience
        self._least = least
        self._share = 1.0
        self._fallen = 0
        self._last_loss = math.nan

    @property
    def observes(self) -> bool:
        """As `inner`."""
        return self._inner.observes

    @property
    def measures_secants(self) -> bool:
        """As `inner`."""
        return self._inner.measures_secants

    def ends(self, slot: int) -> bool:
        """As `inner`."""
        return self._inner.ends(slot)

    def decide(self, interval: int, slot: int) -> Decision:
        """As `inner`, with the noise of now."""
        plan = self._inner.decide(interval, slot)
        share = plan.noise_factor * self._share
        reasons = plan.reasons or {
            "interval": interval + 1,
            "slot": slot,
            "tau": plan.local_steps,
            "step_size": plan.step_size,
        }
        noise = {
            "factor": share,
            "loss": self._last_loss if math.isfinite(self._last_loss) else None,
            "rounds_of_falling_loss": self._fallen,
        }
        return replace(plan, noise_factor=share, reasons={**reasons, "noise": noise})

    def observe(self, seen: IntervalObservation) -> None:
        """As `inner`."""
        self._inner.observe(seen)

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        """As `inner`."""
        self._inner.skipped(interval, local_steps, spent)

    def scored(self, loss: float) -> None:
        if self._inner.scores:
            self._inner.scored(loss)
        self._fallen = self._fallen + 1 if loss < self._last_loss else 0
        self._last_loss = loss
        if self._fallen == self._patience:
            self._share, self._fallen = max(self._least, self._share * self._factor), 0

    def kept(self, model: Tensor) -> Tensor:
        """As `inner`."""
        return self._inner.kept(model)

    def returned(self, model: Tensor) -> Tensor:
        """As `inner`."""
        return self._inner.returned(model)

    def state(self) -> dict[str, Any]:
        return {
            "inner": self._inner.state(),
            "share": self._share,
            "fallen": self._fallen,
            "last_loss": self._last_loss,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._inner.load(state["inner"])
        self._share, self._fallen, self._last_loss = state["share"], state["fallen"], state["last_loss"]


class NoiseDecayOptions(ScheduleOptions):
    """`noise-decay` around the fixed schedule.

    Attributes:
        factor: the noise is multiplied by this each time the loss has fallen often enough.
        patience: for how many intervals in a row the loss must fall.
        least: the smallest share of the first noise that is left.
    """

    name: Literal["noise-decay"] = "noise-decay"
    scales_noise: ClassVar[bool] = True
    ends_by_account: ClassVar[bool] = True

    factor: Fraction = 0.9
    patience: Count = 2
    least: Share = 0.1

    def build(self, context: ScheduleContext) -> NoiseDecay:
        """See `ScheduleTraits.build`; R_c is counted at noise that stays, so here the account ends the run."""
        return NoiseDecay(FixedSchedule.of(context), self.factor, self.patience, self.least)
