"""A module's trainable parameters: as the one vector that is sent, clipped, averaged and perturbed; from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from h2fdp.errors import UserError

_KEY = "model.from"


def load_parameters(module: nn.Module, source: Path) -> str:
    """Put the parameters of a file into a module, in place.

    Args:
        source: a state dict as `torch.save` wrote it, such as a run's `model.pt`; or a run directory, which has one.

    Returns:
        The SHA-256 of the file, 64 hexadecimal digits.

    Raises:
        UserError: no such file, no state dict, other names or shapes than the module's, numbers that are not finite.
    """
    file = source / "model.pt" if source.is_dir() else source
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(
            f"expected a run directory or a model's file, found {file} ({error.strerror})", key=_KEY
        ) from None
    state = _state_of(file)
    wanted = module.state_dict()
    for name in wanted.keys() | state.keys():
        if name not in state or name not in wanted:
            has, lacks = ("the file", "this model") if name in state else ("this model", "the file")
            raise UserError(f"{has} has a parameter {name} that {lacks} has not; expected the same model", key=_KEY)
        shapes = tuple(wanted[name].shape), tuple(state[name].shape)
        if shapes[0] != shapes[1]:
            raise UserError(f"{name} has the shape {shapes[1]} in {file}; expected {shapes[0]}", key=_KEY)
        if not bool(state[name].isfinite().all()):
            raise UserError(f"{name} is not finite everywhere in {file}; expected finite numbers", key=_KEY)
    module.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
    return hashlib.sha256(content).hexdigest()


def _state_of(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, which runs no code of it."""
    try:
        state = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # torch, zipfile and pickle have many
        text = f"expected a state dict as torch.save writes it, found {file}, which torch cannot read"
        raise UserError(text, key=_KEY) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"expected a state dict, names with tensors, in {file}", key=_KEY)
    return state


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
