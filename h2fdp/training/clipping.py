"""Clipping, which makes Assumption 2 (||g_i|| <= G) true: of the averaged gradient, or of each record's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Scope = Literal["batch", "record"]


@dataclass(frozen=True)
class Clipping:
    """What is scaled down to a norm of at most G.

    Attributes:
        norm: G, above 0.
        scope: `batch` scales the mini-batch gradient; `record` scales each record's gradient before the average.
    """

    norm: float
    scope: Scope = "batch"

    def apply(self, gradients: Tensor) -> Tensor:
        """Scale each vector along the last axis to a norm of at most G; a zero vector stays zero.

        A vector with an infinite or undefined norm becomes zero: it may not pass unbounded.

        >>> Clipping(norm=1.0).apply(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000],
                [0.0000, 0.0000]])
        """
        norms = gradients.norm(dim=-1, keepdim=True)
        scaled = gradients * (self.norm / norms.clamp(min=self.norm))
        return torch.where(norms.isfinite(), scaled, 0.0)
