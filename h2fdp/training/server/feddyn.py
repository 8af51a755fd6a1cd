"""The server's part of dynamic regularisation (FedDyn, Acar et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from h2fdp.training.server.update import Kept, Uploaded


class FedDynServer(Kept):
    """h <- h + alpha (share of the devices) average; w <- w - average - h / alpha.

    With equal weights and m devices the share times the average is (1/m) sum over the participants, as in the paper.
    """

    kept = ("drift",)

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self.drift: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`."""
        drift = self._alpha * uploaded.share * uploaded.average
        self.drift = drift if self.drift is None else self.drift + drift
        return model - uploaded.average - self.drift / self._alpha
