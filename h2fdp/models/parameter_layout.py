"""A module's trainable parameters as one vector: the vector that is sent, clipped, averaged and perturbed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class ParameterLayout:
    """Where each trainable parameter lies in the vector of length M, in the order of `named_parameters()`.

    A parameter that a module holds twice (tied weights) is in the vector once, under its first name.

    Attributes:
        names: of the parameters.
        shapes: of the parameters.
        sizes: number of values of each parameter.
        size: length M of the vector.

    >>> flat = ParameterLayout(nn.Linear(3, 2))
    >>> flat.size, flat.names
    (8, ('weight', 'bias'))
    >>> {name: tuple(view.shape) for name, view in flat.views(torch.zeros(5, 8)).items()}
    {'weight': (5, 2, 3), 'bias': (5, 2)}
    """

    def __init__(self, module: nn.Module) -> None:
        held = _trainable(module)
        self.names: tuple[str, ...] = tuple(held)
        self.shapes: tuple[tuple[int, ...], ...] = tuple(tuple(parameter.shape) for parameter in held.values())
        self.sizes: tuple[int, ...] = tuple(math.prod(shape) for shape in self.shapes)
        self.size = sum(self.sizes)

    def to_vector(self, module: nn.Module) -> Tensor:
        """A copy of the module's parameters, shape (M,), float32, without gradient."""
        held = _trainable(module)
        return torch.cat([held[name].detach().reshape(-1) for name in self.names]).to(torch.float32)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Each parameter as a view of the vector, by name, for `torch.func.functional_call`.

        Made by one split, so that the gradient of a loss with respect to the vector is one concatenation.

        Args:
            vector: shape (..., M); leading dimensions (a stack of models) stay in front.
        """
        pieces = torch.split(vector, list(self.sizes), dim=-1) if len(self.sizes) > 1 else (vector,)
        stacked = vector.shape[:-1]
        return {
            name: piece.view(*stacked, *shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def load(self, module: nn.Module, vector: Tensor) -> None:
        """Write a vector of shape (M,) into the module's parameters."""
        assert vector.shape == (self.size,), "a vector of this layout"
        held = _trainable(module)
        with torch.no_grad():
            for name, view in self.views(vector).items():
                held[name].copy_(view)


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
