"""Noise that falls with the loss, as a schedule of one's own (Adap DP-FL: Fu et al. 2022).

    method: {extends: fedavg-dp, schedule: {name: "experiments.noise_decay:NoiseDecay", factor: 0.9}}

The loss is that of the global model on public records, namely the test data. This costs no privacy, but it makes the
accuracy on the same data look better than it is. Less noise than planned spends more privacy: the run ends when its
account reaches `privacy.epsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from experiments.programs import require, require_count
from h2fdp.schedules import Decision, FixedSchedule, OwnSchedule


class NoiseDecay(OwnSchedule):
    """The fixed schedule, with less noise once the loss has fallen for some rounds in a row.

    After `patience` rounds in each of which the loss was below that of the round before, the noise is multiplied by
    `factor`, and the count restarts. It never rises again. The account ends the run, as R_c counts noise that stays.

    Args:
        factor: above 0 and below 1.
        patience: rounds.
        least: how small a share of the noise may become, above 0 and at most 1.

    Raises:
        UserError: a number out of its range.
    """

    scales_noise: ClassVar[bool] = True
    ends_by_account: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = True
    scores: ClassVar[bool] = True

    def __init__(self, factor: float = 0.9, patience: int = 2, least: float = 0.1) -> None:
        require(0 < factor < 1, "factor", factor, "a number above 0 and below 1")
        require(0 < least <= 1, "least", least, "a number above 0 and at most 1")
        require_count(patience, 1, "patience")
        self._factor, self._patience, self._least = factor, patience, least
        self._share = 1.0
        self._fallen = 0
        self._last_loss = math.nan

    def choose(self, interval: int, slot: int) -> Decision:
        plan = FixedSchedule.of(self.context).decide(interval, slot)
        noise = {
            "factor": self._share,
            "loss": self._last_loss if math.isfinite(self._last_loss) else None,
            "rounds_of_falling_loss": self._fallen,
        }
        reasons = {
            "interval": interval + 1,
            "slot": slot,
            "tau": plan.local_steps,
            "step_size": plan.step_size,
            "noise": noise,
        }
        return replace(plan, noise_factor=self._share, reasons=reasons)

    def scored(self, loss: float) -> None:
        self._fallen = self._fallen + 1 if loss < self._last_loss else 0
        self._last_loss = loss
        if self._fallen == self._patience:
            self._share, self._fallen = max(self._least, self._share * self._factor), 0

    def state(self) -> dict[str, Any]:
        return {"share": self._share, "fallen": self._fallen, "last_loss": self._last_loss}

    def load(self, state: Mapping[str, Any]) -> None:
        self._share, self._fallen, self._last_loss = state["share"], state["fallen"], state["last_loss"]
