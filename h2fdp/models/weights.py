"""Parameters of modules from files on the user's disk: state dicts of torch, safetensors, run directories."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from h2fdp.errors import UserError
from h2fdp.wording import note_once


def load_parameters(
    module: nn.Module, source: Path, key: str = "model.from", frozen: bool = False, fresh: Iterable[str] = ()
) -> str:
    """Put the parameters of a file into a module, in place.

    Args:
        source: a state dict as `torch.save` or safetensors wrote it, such as a run's `model.pt`; or a run directory,
            which has one.
        key: that names the file, for messages.
        frozen: the file has what is not trained, too; it may have more.
        fresh: of `frozen` parameters, those that stay as they are where the file has none, or of other shapes.

    Returns:
        The SHA-256 of the file, 64 hexadecimal digits.

    Raises:
        UserError: no such file, no state dict, other names or shapes than the module's, numbers that are not real,
            dense and finite; other values of frozen parameters or buffers, which every host has from the module.
    """
    file = source / "model.pt" if source.is_dir() else source
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(
            f"expected a run directory or a model's file, found {file} ({error.strerror})", key=key
        ) from None
    wanted, state = module.state_dict(), _state_of(file, key)
    trained = {parameter.data_ptr() for parameter in module.parameters() if parameter.requires_grad}
    if frozen:  # a classifier above the encoder is left out, and old files have no counts of batches
        state = {name: value for name, value in state.items() if name in wanted}
        stay = [name for name in fresh if name not in state or state[name].shape != wanted[name].shape]
        if other := [name for name in stay if name in state]:
            note_once(f"{key}: {', '.join(other)} begin at random numbers, as the file has them in other shapes")
        state, wanted = ({name: each for name, each in own.items() if name not in stay} for own in (state, wanted))
        wanted = {name: each for name, each in wanted.items() if name in state or "num_batches_tracked" not in name}
    for name in sorted(wanted.keys() | state.keys()):
        if name not in state or name not in wanted:
            has, lacks = ("the file", "this model") if name in state else ("this model", "the file")
            raise UserError(f"{has} has a parameter {name} that {lacks} has not; expected the same model", key=key)
        if problem := _unlike_parameter(state[name], wanted[name], frozen or wanted[name].data_ptr() in trained):
            found, expected = problem
            raise UserError(f"{name} {found} in {file}; expected {expected}", key=key)
    module.load_state_dict({name: value.to(wanted[name].dtype) for name, value in state.items()}, strict=not frozen)
    return hashlib.sha256(content).hexdigest()


def digest_of(source: Path) -> str:
    """A SHA-256 of a file, or of all files of a folder with their names, 64 hexadecimal digits."""
    if source.is_file():
        return hashlib.sha256(source.read_bytes()).hexdigest()
    found = hashlib.sha256()
    for file in sorted(each for each in source.rglob("*") if each.is_file()):
        found.update(f"{file.relative_to(source)} {digest_of(file)}\n".encode())
    return found.hexdigest()


def _unlike_parameter(found: Tensor, wanted: Tensor, trained: bool) -> tuple[str, str] | None:
    """A sentence on how a file's tensor differs from a module's; None where it fits."""
    if found.layout != torch.strided or found.is_meta or found.is_complex() or found.is_quantized or found.is_nested:
        kind = "has no numbers (meta)" if found.is_meta else f"is of type {found.dtype} and layout {found.layout}"
        return kind, "dense tensors of real numbers"
    if found.shape != wanted.shape:
        return f"has the shape {tuple(found.shape)}", str(tuple(wanted.shape))
    own = found.to(wanted.dtype)  # what is finite in 64 bits may not be in 32
    if not bool(own.isfinite().all()):
        return "is not finite everywhere", "finite numbers"
    if not trained and not torch.equal(own, wanted):
        return "is not trained, and has other numbers", "those with which the model is made"
    return None


def _state_of(file: Path, key: str) -> Mapping[str, Tensor]:
    """The tensors of a file, which runs no code of it."""
    try:
        if file.suffix == ".safetensors":
            return extra("safetensors.torch", key).load_file(file)  # type: ignore[no-any-return]
        state = torch.load(file, weights_only=True, map_location="cpu")
    except UserError:
        raise
    except Exception as error:  # torch, zipfile, pickle and safetensors have many
        text = f"expected a state dict as torch.save or safetensors writes it, found {file}, which cannot be read"
        raise UserError(text, key=key) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"expected a state dict, names with tensors, in {file}", key=key)
    return state


def extra(module: str, key: str) -> Any:
    """A module of the extra `encoders`.

    Raises:
        UserError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{error}; expected the extra of encoders: pip install 'h2fdp[encoders]'"
        raise UserError(text, key=key) from error
