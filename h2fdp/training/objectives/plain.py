"""The mean loss itself (H2FDP, Eqs. 7-8)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from h2fdp.training.objectives.objective import Gradient


@dataclass(frozen=True)
class Plain:
    """w <- w - eta g."""

    def step(self, model: Tensor, gradient: Gradient, received: Tensor, step_size: float) -> Tensor:
        """See `LocalObjective.step`."""
        followed = gradient(model)
        return torch.sub(model, followed, alpha=step_size, out=followed)

    def keeps_sensitivity(self, step_size: float) -> bool:
        """Each step moves by eta times a clipped gradient."""
        return True
