"""Personal models at the Moreau envelope of the loss (pFedMe, T. Dinh et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from h2fdp.algorithms.registry import OBJECTIVES, ObjectiveOptions, name_method
from h2fdp.config.fields import Magnitude
from h2fdp.training.local_steps import Gradient, LocalObjective, LocalWork

INNER_STEPS = 5  # of the paper's experiments (K in Sec. 5)


@dataclass(frozen=True)
class PFedMe:
    """Each step: k times theta <- theta - a (g(theta) + lambda (theta - w)), then w <- w - eta lambda (w - theta).

    All on one batch. theta continues from where the last step left it, as in the authors' program; it is the
    device's personal model.
    """

    penalty: float
    inner_steps: int
    inner_step_size: float
    memory: ClassVar[str | None] = "personal models"
    personal: ClassVar[bool] = True
    pull: ClassVar[float | None] = None

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """lambda (w - theta), after k steps of theta."""
        assert personal is not None, "a device has a personal model"
        for _ in range(self.inner_steps):
            pull = (personal - model).mul_(self.penalty)
            personal = personal.sub(pull.add_(gradient(personal)), alpha=self.inner_step_size)
        return (model - personal).mul_(self.penalty), personal

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """The personal model outlives the upload."""
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """None: every interval begins at the received model."""
        return None

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """theta_i; of a device that did no step, as it was."""
        assert done.personal is not None, "a device has a personal model"
        return done.personal.where(done.steps[:, None] > 0, memory)


@OBJECTIVES.register
class PFedMeOptions(ObjectiveOptions):
    """Of the descent to a device's own model.

    Attributes:
        penalty: lambda, which ties it to the shared model.
        inner_step_size: of these steps.
    """

    name: Literal["pfedme"] = "pfedme"
    penalty: Magnitude = 15.0
    inner_step_size: Magnitude = 0.05

    def build(self) -> LocalObjective:
        """The objective."""
        return PFedMe(self.penalty, INNER_STEPS, self.inner_step_size)


name_method(
    "pfedme", "personal models at the Moreau envelope (T. Dinh et al. 2020)", objective="pfedme", topology="star"
)
