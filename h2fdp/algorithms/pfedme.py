"""Personal models at the Moreau envelope of the loss (pFedMe, T. Dinh et al. 2020)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from h2fdp.algorithms.registry import OBJECTIVES, ObjectiveOptions, name_method
from h2fdp.config.fields import Magnitude
from h2fdp.training.local_steps import Gradient, LocalWork


@OBJECTIVES.register
class PFedMe(ObjectiveOptions):
    """The descent to a device's own model.

    Each step: k times theta <- theta - a (g(theta) + lambda (theta - w)), then w <- w - eta lambda (w - theta).

    All on one batch. theta continues from where the last step left it, as in the authors' program; it is the
    device's personal model.

    Attributes:
        penalty: lambda, the pull of the personal model towards the shared one.
        inner_step_size: step size of the inner steps.
    """

    inner_steps: ClassVar[int] = 5  # k, of the paper's experiments (K in Sec. 5)
    gradients: ClassVar[int] = 5
    memory: ClassVar[str | None] = "personal models"
    personal: ClassVar[bool] = True
    pull: ClassVar[float | None] = None

    name: Literal["pfedme"] = "pfedme"
    penalty: Magnitude = 15.0
    inner_step_size: Magnitude = 0.05

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """lambda (w - theta), after k steps of theta."""
        assert personal is not None, "a device has a personal model"
        for _ in range(self.inner_steps):
            pull = (personal - model).mul_(self.penalty)
            personal = personal.sub(pull.add_(gradient(personal)), alpha=self.inner_step_size)
        return (model - personal).mul_(self.penalty), personal

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """theta_i; of a device that did no step, as it was."""
        assert done.personal is not None, "a device has a personal model"
        return done.personal.where(done.steps[:, None] > 0, memory)


name_method(
    "pfedme", "personal models at the Moreau envelope (T. Dinh et al. 2020)", objective="pfedme", topology="star"
)
