"""The server's part of control variates (Scaffold, Karimireddy et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from h2fdp.training.server.update import Kept, Uploaded


class ScaffoldServer(Kept):
    """w <- w - server_step average; c <- c + (share of the devices) average change of c_i. c begins at 0."""

    kept = ("control",)

    def __init__(self, size: int, server_step: float) -> None:
        self._step = server_step
        self.control = torch.zeros(size)

    @property
    def variate(self) -> Tensor | None:
        """c."""
        return self.control

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`."""
        assert uploaded.variate is not None, "devices send how their control variates change"
        self.control = self.control + uploaded.share * uploaded.variate
        return model - self._step * uploaded.average
