"""Server momentum (FedAvgM, Hsu et al. 2019)."""

from __future__ import annotations

from torch import Tensor

from h2fdp.training.server.update import Kept, Uploaded


class Momentum(Kept):
    """v <- beta v + average; w <- w - server_step v."""

    kept = ("velocity",)

    def __init__(self, beta: float, server_step: float) -> None:
        self._beta = beta
        self._step = server_step
        self.velocity: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`."""
        past = 0.0 if self.velocity is None else self._beta * self.velocity
        self.velocity = past + uploaded.average
        return model - self._step * self.velocity
