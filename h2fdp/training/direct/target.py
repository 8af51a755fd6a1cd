"""Where the gradients of a layer's parameters go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """Where the gradients of a layer's parameters go: held = kept held + factor gradient.

    Attributes:
        held: a view for each parameter.
        kept: 0 to overwrite what is held, 1 to add to it.
    """

    held: Sequence[Tensor]
    kept: float
    factor: float

    def add_product(self, place: int, left: Tensor, right: Tensor) -> None:
        """The gradient left^T right of a matrix."""
        self.held[place].addmm_(left.t(), right, beta=self.kept, alpha=self.factor)

    def add(self, place: int, gradient: Tensor) -> None:
        """A gradient as it is."""
        if self.kept:
            self.held[place].add_(gradient, alpha=self.factor)
        else:
            torch.mul(gradient, self.factor, out=self.held[place])
