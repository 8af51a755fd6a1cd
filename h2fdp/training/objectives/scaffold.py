"""Control variates against client drift (Scaffold, Karimireddy et al. 2020, option II)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from h2fdp.training.objectives.objective import Gradient, LocalWork


@dataclass(frozen=True)
class Scaffold:
    """w <- w - eta (g - c_i + c); after K steps c_i <- c_i - c + (sum of the updates) / (K eta).

    The new c_i is a mean of the gradients along the device's way. In a tree the updates of all segments of the interval
    count; with momentum, K is how many gradients they are worth. The device uploads the change of c_i with its update.
    """

    memory: ClassVar[str | None] = "control variates"
    personal: ClassVar[bool] = False

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `LocalObjective.direction`."""
        return gradient(model), None

    def keeps_sensitivity(self, step_size: float) -> bool:
        """The variates are functions of all that came before."""
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """c - c_i."""
        assert variate is not None, "Scaffold's server sends its control variate"
        return variate - memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """c_i; of a device that did no step, as it was."""
        assert variate is not None, "Scaffold's server sends its control variate"
        changed = memory - variate + done.updates / (done.gradients[:, None].clamp(min=1) * done.step_size)
        return changed.where(done.steps[:, None] > 0, memory)
