"""Which modules can be trained by many devices in private, and why others cannot."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from h2fdp.errors import UserError


def check_fitness(module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module that cannot be federated, with the reason.

    Runs the module on two records; afterwards lazy parameters are there. Draws from torch's global generator.

    Raises:
        UserError: batch norm or any other mixing of records, buffers, random numbers in the forward pass (dropout),
            no trainable parameter, parameters that are not 32-bit floats, an output that is not (n, classes).
    """
    for reason in (_unfit_layer(module), _unfit_forward(module, shape, classes), _unfit_state(module)):
        if reason:
            raise UserError(reason, key="model")


def _unfit_layer(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            return f"{_called(name, layer)}: batch norm leaks and cannot be averaged: use GroupNorm"
        if isinstance(layer, _DropoutNd) and layer.p > 0:
            return f"{_called(name, layer)}: {_RANDOM}"
    return ""


_RANDOM = (
    "random numbers in the forward pass (dropout) come from torch's own generator and are not reproducible; "
    "leave it out"
)


def _unfit_forward(module: nn.Module, shape: tuple[int, ...], classes: int) -> str:
    """What two records through the module show: failures, the output's shape, randomness, mixing."""
    module.train()
    alike = torch.ones(2, *shape)  # not zeros, of which a dropout would show nothing
    unlike = alike.clone()
    unlike[1] = 0.0
    try:
        with torch.no_grad():
            first, again, other = module(alike), module(alike), module(unlike)
    except UserError:
        raise
    except Exception as error:
        return f"the model fails on two records of shape {shape}: {error}"
    if not isinstance(first, Tensor) or first.shape != (2, classes):
        found = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        return f"the model must map 2 records of shape {shape} to scores of shape (2, {classes}), found {found}"
    if not torch.equal(first, again):
        return _RANDOM
    # The first record is the same in both batches, its neighbour is not.
    if not torch.allclose(first[0], other[0], rtol=1e-3, atol=1e-5):
        return "a record's scores depend on the other records of its batch, so its gradient cannot be clipped"
    return ""


def _unfit_state(module: nn.Module) -> str:
    for name, _ in module.named_buffers():
        return f"the buffer `{name}` is state outside the parameters, which is neither averaged nor protected"
    trainable = [(name, held) for name, held in module.named_parameters() if held.requires_grad]
    if not any(held.numel() for _, held in trainable):
        return "the model has no trainable parameters"
    for name, held in trainable:
        if held.dtype != torch.float32:
            return f"the parameter `{name}` has type {held.dtype}; expected torch.float32"
    return ""


def _called(name: str, layer: nn.Module) -> str:
    return f"the layer `{name}` ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"
