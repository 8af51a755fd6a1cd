"""Federated averaging (McMahan et al. 2017; H2FDP, Eq. 14)."""

from __future__ import annotations

from torch import Tensor

from h2fdp.training.server.update import Kept, Uploaded


class Average(Kept):
    """w <- w - average."""

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`."""
        return model - uploaded.average
