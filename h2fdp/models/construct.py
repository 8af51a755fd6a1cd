"""Build a model by name or from the user's own class, initialised from a key, and refuse what cannot be federated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from h2fdp.errors import UserError
from h2fdp.models.fitness import check_fitness
from h2fdp.models.registry import MODELS

ModelSource = str | nn.Module | Callable[[], nn.Module]


def build(
    source: ModelSource,
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any] | None = None,
    seed_key: int = 0,
) -> nn.Module:
    """A model on the CPU, initialised by torch's defaults, the same for the same key.

    Args:
        source: a name of the registry; or an nn.Module class or any factory that takes no arguments; or a module,
            which is copied as it is, parameters included.
        shape: one record's shape.
        classes: number of labels; the model maps (n, *shape) to scores of shape (n, classes).
        options: a named model's options.
        seed_key: key of the initialisation, as from `Streams.key`.

    Raises:
        UserError: an unknown name, records that the model cannot take, or a module that cannot be trained by many
            devices in private (see `check_fitness`).

    >>> sum(parameter.numel() for parameter in build("softmax", (1, 28, 28), 10).parameters())
    7840
    """
    # Torch's CPU generator keeps 32 bits of its seed, which bars it from drawing noise. Here that is harmless: initial
    # models are public, no privacy rests on them, and two seeds with equal initial models would cost nothing.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_key % 2**63)
        module = _make(source, shape, classes, options or {})
        check_fitness(module, shape, classes)
    return module


def _make(source: ModelSource, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    if isinstance(source, str):
        if source not in MODELS:
            raise UserError(f'expected one of {", ".join(sorted(MODELS))}, found "{source}"', key="model")
        entry = MODELS[source]
        unknown = sorted(set(options) - set(entry.options))
        if unknown:
            raise UserError(f"`{unknown[0]}` means nothing for {source}", key="model")
        file, function = entry.builder
        builder: Callable[..., nn.Module] = getattr(import_module(f"{__package__}.{file}"), function)
        return builder(shape, classes, **{**entry.options, **options})
    if options:
        raise UserError("options need a model name; a class or factory takes none", key="model")
    if isinstance(source, nn.Module):
        return copy.deepcopy(source)
    if not callable(source):
        text = f"expected a name, an nn.Module class or a factory without arguments, found {type(source).__name__}"
        raise UserError(text, key="model")
    name = getattr(source, "__name__", "the factory")
    try:
        module = source()
    except Exception as error:
        raise UserError(f"{name}() cannot be made without arguments: {error}", key="model") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"{name}() must give an nn.Module, found {type(module).__name__}", key="model")
    return module
