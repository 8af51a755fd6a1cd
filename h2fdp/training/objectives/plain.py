"""The mean loss itself (H2FDP, Eqs. 7-8)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from h2fdp.training.objectives.objective import Forgetful, Gradient


@dataclass(frozen=True)
class Plain(Forgetful):
    """w <- w - eta g."""

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `LocalObjective.direction`."""
        return gradient(model), None

    def keeps_sensitivity(self, step_size: float) -> bool:
        """Each step moves by eta times a clipped gradient."""
        return True
