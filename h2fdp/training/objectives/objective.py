"""The first axis of a method: what a device minimises, as a pure step over explicit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

Gradient = Callable[[Tensor], Tensor]


class LocalObjective(Protocol):
    """One local step. Engines call it with one model or with a stack of them."""

    def step(self, model: Tensor, gradient: Gradient, received: Tensor, step_size: float) -> Tensor:
        """The model after one local step, a new tensor.

        Args:
            model: (..., M) w_i, before the step.
            gradient: the mini-batch gradient (..., M) at a point (..., M), already clipped; zero where the batch is
                empty. The caller may overwrite it.
            received: (..., M) the model that the device was sent last.
            step_size: eta_k.
        """
        ...

    def keeps_sensitivity(self, step_size: float) -> bool:
        """Whether m steps of this size move an upload by at most 2 eta m G when one record changes."""
        ...
