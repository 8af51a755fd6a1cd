"""Dynamic regularisation (FedDyn, Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from h2fdp.training.objectives.objective import Gradient, LocalWork


@dataclass(frozen=True)
class FedDyn:
    """The loss - <h_i, w> + alpha/2 ||w - received||^2, where h_i is the gradient at the last local optimum.

    After an interval h_i <- h_i - alpha (w_i - w(t_k)): at an optimum of the regularised loss that is its gradient.
    """

    alpha: float
    memory: ClassVar[str | None] = "gradients at the last optimum"
    personal: ClassVar[bool] = False

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `LocalObjective.direction`."""
        pull = (model - received).mul_(self.alpha)
        return pull.add_(gradient(model)), None

    def keeps_sensitivity(self, step_size: float) -> bool:
        """h_i is a function of all that came before."""
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """- h_i."""
        return -memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """h_i, by the sum of the interval's updates, w(t_k) - w_i."""
        return memory.add(done.updates, alpha=self.alpha)
