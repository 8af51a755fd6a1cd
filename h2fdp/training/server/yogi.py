"""An adaptive server optimiser (FedYogi, Reddi et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from h2fdp.training.server.update import Kept, Uploaded


class Yogi(Kept):
    """With a = average: m <- b1 m + (1 - b1) a; v <- v - (1 - b2) a^2 sign(v - a^2); w <- w - s m / (sqrt(v) + tau).

    m begins at 0 and v at tau^2, all by coordinate and without a correction of the start, as in the paper.
    """

    kept = ("first", "second")

    def __init__(self, beta1: float, beta2: float, server_step: float, adaptivity: float) -> None:
        self._beta1, self._beta2 = beta1, beta2
        self._step, self._adaptivity = server_step, adaptivity
        self.first: Tensor | None = None
        self.second: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`."""
        change = uploaded.average
        first = torch.zeros_like(change) if self.first is None else self.first
        second = torch.full_like(change, self._adaptivity**2) if self.second is None else self.second
        squared = change.square()
        self.first = self._beta1 * first + (1 - self._beta1) * change
        self.second = second - (1 - self._beta2) * squared * (second - squared).sign()
        return model - self._step * self.first / (self.second.sqrt() + self._adaptivity)
