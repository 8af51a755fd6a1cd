"""A pull towards the received model (FedProx, Li et al. 2020; PEDPFL, Shen et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from h2fdp.training.objectives.objective import Forgetful, Gradient


@dataclass(frozen=True)
class Proximal(Forgetful):
    """The loss plus mu/2 ||w - received||^2: w <- w - eta (g + mu (w - received)).

    The pull is no data, so it is not clipped. Two runs that differ in a record come apart by at most
    d <- |1 - eta mu| d + 2 eta G a step; while eta mu <= 2 that is no more than the plain objective's 2 eta G.
    """

    mu: float

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `LocalObjective.direction`."""
        pull = (model - received).mul_(self.mu)
        return pull.add_(gradient(model)), None

    def keeps_sensitivity(self, step_size: float) -> bool:
        """See the class."""
        return step_size * self.mu <= 2.0
