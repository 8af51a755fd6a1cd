"""A trained model with what was done to its inputs in front of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.data.public_features import PublicFeatures
from h2fdp.data.standardized import Standardizing


class OnImages(nn.Module):
    """Images to scores: their public features, then the head that was trained.

    Args:
        features: of the run.
        head: maps (n, size + 1) to scores.
    """

    def __init__(self, features: PublicFeatures, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) from 0 to 1 -> (n, classes); no gradient reaches the images."""
        found: Tensor = self.head(torch.from_numpy(self.features(images.detach().float().numpy())))
        return found


class OnStandardized(nn.Module):
    """Inputs to scores: standardised as in the run, then the model that was trained.

    Args:
        by: mean and deviation.
        model: maps standardised inputs to scores.
    """

    def __init__(self, by: Standardizing, model: nn.Module) -> None:
        super().__init__()
        self.by, self.model = by, model

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, *shape) as the data set has them -> (n, classes)."""
        found: Tensor = self.model(torch.from_numpy(self.by(inputs.detach().float().numpy())))
        return found


def whole(model: nn.Module, summary: dict[str, Any]) -> nn.Module:
    """The trained model of a run, of inputs as they were before the run changed them."""
    shape = tuple(summary["shape"])
    if summary.get("image_shape"):
        return OnImages(PublicFeatures.of(tuple(summary["image_shape"]), shape[0] - 1), model)
    if stated := summary.get("standardized_by"):
        mean, deviation = (np.array(stated[key], np.float32).reshape(shape) for key in ("mean", "deviation"))
        return OnStandardized(Standardizing(mean, deviation), model)
    return model
