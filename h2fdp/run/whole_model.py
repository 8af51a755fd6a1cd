"""A trained model with what was done to its inputs in front of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from h2fdp.data.public_features import PublicFeatures
from h2fdp.data.standardized import Standardizing


class WithInputs(nn.Module):
    """Inputs to scores: changed as in the run, then what the trained model makes of them.

    Args:
        change: (n, *shape), float32 -> what the model was trained on, alike for each record.
        model: maps these to scores.
    """

    def __init__(self, change: Callable[[NDArray[np.float32]], NDArray[np.float32]], model: nn.Module) -> None:
        super().__init__()
        self.change, self.model = change, model

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, *shape) -> (n, classes), where the inputs are; no gradient reaches them."""
        changed = torch.from_numpy(self.change(inputs.detach().float().cpu().numpy()))
        found: Tensor = self.model(changed.to(inputs.device))
        return found


def whole(model: nn.Module, summary: dict[str, Any]) -> nn.Module:
    """The trained model of a run, of inputs as they were before the run changed them; images from 0 to 1."""
    shape = tuple(summary["shape"])
    if summary.get("image_shape"):
        return WithInputs(PublicFeatures.of(tuple(summary["image_shape"]), shape[0] - 1), model)
    if stated := summary.get("standardized_by"):
        mean, deviation = (np.array(stated[key], np.float32).reshape(shape) for key in ("mean", "deviation"))
        return WithInputs(Standardizing(mean, deviation), model)
    return model
