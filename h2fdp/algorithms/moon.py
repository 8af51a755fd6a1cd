"""Model-contrastive learning (MOON, Li et al. 2021): features near the received model's, far from the device's last."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from h2fdp.algorithms.registry import OBJECTIVES, ObjectiveOptions, name_method
from h2fdp.config.fields import Magnitude
from h2fdp.training.local_steps import Gradient, LocalWork


@OBJECTIVES.register
class Moon(ObjectiveOptions):
    """MOON's contrast of features.

    Adds mu log(1 + exp((sim(z, z_last) - sim(z, z_received)) / temperature)), with sim the cosine, to each loss.

    That is the paper's - mu log(e^a / (e^a + e^b)). z are the features of a record under the device's model, the one
    that it received and the one with which it ended its last interval; in its first that is the received one too.

    Attributes:
        mu: weight of the added term.
    """

    temperature: ClassVar[float] = 0.5  # in all experiments of the paper (Sec. 4.1)
    memory: ClassVar[str | None] = "last local models"

    name: Literal["moon"] = "moon"
    mu: Magnitude = 1.0

    def feature_loss(self, features: Tensor, received: Tensor, previous: Tensor) -> Tensor:
        """(n,) the contrastive losses."""
        near = functional.cosine_similarity(features, received, dim=-1)
        far = functional.cosine_similarity(features, previous, dim=-1)
        return self.mu * functional.softplus((far - near) / self.temperature)

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradient of both losses."""
        return gradient(model), None

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """The last local models, to compare with."""
        return memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """The model at which each device ended; of a device that did no step, its old memory."""
        return done.ends.where(done.steps[:, None] > 0, memory)


name_method("moon", "model-contrastive learning (Li et al. 2021)", objective="moon", topology="star")
