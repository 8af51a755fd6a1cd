"""A layer with parameters, over a stack of devices that each have their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from h2fdp.training.gradients.per_example import PerExampleGradients


class Layer(Protocol):
    """One layer of a chain; n devices, W records of each."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        """The output (n, W, ...), differentiable in x (n, W, ...), and what the gradients need later.

        Args:
            parameters: (n, *shape) of each parameter, in the order of the module's `named_parameters`.
        """
        ...

    def sums(self, saved: Any, delta: Tensor) -> list[Tensor]:
        """For each parameter (n, *shape): the gradients summed over records.

        Args:
            saved: from `forward`.
            delta: (n, W, ...) gradient in the output.
        """
        ...

    def record_gradients(self, saved: Any, delta: Tensor) -> list[PerExampleGradients]:
        """For each parameter: the gradients record by record."""
        ...
