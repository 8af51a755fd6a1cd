"""Warm starts: the parameters of a model from a file, instead of random ones."""

from __future__ import annotations

import hashlib
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
