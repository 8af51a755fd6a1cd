"""Modules by name or of the user's own: built from a key, refused where they cannot be federated, and as one vector."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from h2fdp.config.own_answers import FAILURES, Origin, failure, trace
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import Problem, UserError, not_one_of
from h2fdp.models import architectures
from h2fdp.models.registry import FIX, MODELS, ModelSection

ModelSource = str | nn.Module | Callable[[], nn.Module]


def build(
    source: ModelSource,
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any] | None = None,
    seed_key: int = 0,
    whole: bool = False,
) -> nn.Module:
    """A model on the CPU, initialised by torch's defaults, the same for the same key.

    Args:
        source: a name of the registry; or an nn.Module class or any factory that takes no arguments; or a module,
            which is copied as it is, parameters included.
        shape: one record's shape.
        classes: number of labels; the model maps (n, *shape) to scores of shape (n, classes).
        options: a named model's options.
        seed_key: key of the initialisation, as from `Streams.key`.
        whole: inputs are whole numbers: a module that fails with floats and takes these, as `nn.Embedding` does, is
            called with int64.

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
        if whole and not _takes(module, torch.ones(2, *shape)) and _takes(module, torch.ones(2, *shape).long()):
            module.register_forward_pre_hook(_as_whole)
        check_fitness(module, shape, classes)
    return module


def _takes(module: nn.Module, inputs: Tensor) -> bool:
    """Whether a module answers such inputs at all."""
    try:
        with torch.no_grad():
            module(inputs)
    except FAILURES:
        return False
    return True


def _as_whole(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(each.long() for each in inputs)


def builder_of(
    model: ModelSection, shape: tuple[int, ...], classes: int, seed_key: int, whole: bool = False
) -> Callable[[], nn.Module]:
    """What builds the model of a `model:` section, with the same initial parameters each time; see `build`."""
    if isinstance(model, OwnPart):
        return partial(_build_own, own_model(model), model.origin, shape, classes, seed_key, whole)
    return partial(build, model.name, shape, classes, model.architecture, seed_key)


def own_model(part: OwnPart) -> Callable[[], nn.Module]:
    """The function that makes a user's model, with `fix` if it is stated."""
    fix = part.given.get(FIX)
    if not isinstance(fix, bool | None):
        raise UserError(f"expected fix: true or false, found {fix}", part.where, part.key)
    return partial(_fixed, part.function) if fix else part.function


def _fixed(function: Callable[[], nn.Module]) -> nn.Module:
    """A user's module with group norm in place of batch norm, as Opacus replaces it; all else stays as it is.

    Opacus would give LSTMs and attention other classes too, which nothing here needs. Vectors (BatchNorm1d) are one
    group: where a group is a single value, that value becomes 0.
    """
    from opacus.validators import ModuleValidator

    made = function()
    if not isinstance(made, nn.Module):
        return made
    new: dict[nn.Module | None, nn.Module] = {}
    for layer in made.modules():  # each once, though it may have several places
        if isinstance(layer, _BatchNorm) and type(layer) in ModuleValidator.FIXERS:
            groups = 1 if isinstance(layer, nn.BatchNorm1d) else None
            new[layer] = ModuleValidator.FIXERS[type(layer)](layer, num_groups=groups)
    for parent in [*made.modules()]:
        for name, child in parent._modules.items():
            parent._modules[name] = new.get(child, child)
    return new.get(made, made)


def _build_own(
    function: Callable[[], nn.Module], origin: Origin, shape: tuple[int, ...], classes: int, seed_key: int, whole: bool
) -> nn.Module:
    try:
        return build(function, shape, classes, None, seed_key, whole)
    except UserError as error:
        raise origin.located(error) from error.__cause__


def _make(source: ModelSource, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    if isinstance(source, str):
        if source not in MODELS:
            raise UserError(not_one_of(source, sorted(MODELS)), key="model")
        model = MODELS[source]
        builder: Callable[..., nn.Module] = getattr(architectures, model.builder)
        return builder(shape, classes, **{**model.model_validate({}).options(), **options})
    if isinstance(source, nn.Module):
        return copy.deepcopy(source)
    name = getattr(source, "__name__", "the factory")
    try:
        module = source()
    except FAILURES as error:
        text = f"{name}() cannot be made without arguments: {failure(error)}"
        raise UserError([Problem(text, key="model", trace=trace(error))]) from error
    if not isinstance(module, nn.Module):
        raise UserError(f"{name}() must give an nn.Module, found {type(module).__name__}", key="model")
    return module


def check_fitness(module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module that cannot be federated, with the reason.

    Runs the module on two records; afterwards lazy parameters are there. Draws from torch's global generator.

    Raises:
        UserError: batch norm or any other mixing of records, buffers, random numbers in the forward pass (dropout),
            no trainable parameter, parameters that are not 32-bit floats, an output that is not (n, classes).
    """
    # Buffers before a call, in which spectral norm changes its own and scores are other ones each time; and after it,
    # by which those of lazy layers are there.
    reason = (
        _unfit_layer(module)
        or _unfit_buffer(module)
        or _unfit_forward(module, shape, classes)
        or _unfit_buffer(module)
        or _unfit_parameters(module)
    )
    if reason:
        raise UserError(reason, key="model")


def _unfit_layer(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            return f"{_called(name, layer)}: batch norm leaks and cannot be averaged: use GroupNorm, or {_HINT}"
        if isinstance(layer, _DropoutNd) and layer.p > 0:
            return f"{_called(name, layer)}: {_RANDOM}"
    return ""


_HINT = 'model: {name: "module:Name", fix: true}, which replaces it'
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
    first, again, other = _scores(module, alike), _scores(module, alike), _scores(module, unlike)
    if not isinstance(first, Tensor) or first.shape != (2, classes):
        actual = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        return f"the model must map 2 records of shape {shape} to scores of shape (2, {classes}), found {actual}"
    if bool(first.isnan().any()):
        return f"the model's scores of two records of shape {shape} are NaN; expected numbers"
    if not torch.equal(first, again):
        return _RANDOM
    # The first record is the same in both batches, its neighbour is not.
    if not torch.allclose(first[0], other[0], rtol=1e-3, atol=1e-5):
        return "a record's scores depend on the other records of its batch, so its gradient cannot be clipped"
    for count in (1, 7):  # shapes that hold for two records by chance
        scores = _scores(module, torch.ones(count, *shape))
        if scores.shape != (count, classes):
            actual = tuple(scores.shape)
            return f"the model must map {count} records to scores of shape ({count}, {classes}), found {actual}"
    return ""


def _scores(module: nn.Module, x: Tensor) -> Any:
    """What a module makes of records x (n, *shape).

    Raises:
        UserError: it fails.
    """
    try:
        with torch.no_grad():
            return module(x)
    except UserError:
        raise
    except FAILURES as error:
        count = {1: "one record", 2: "two records"}.get(len(x), f"{len(x)} records")
        text = f"the model fails on {count} of shape {tuple(x.shape[1:])}: {failure(error)}"
        raise UserError([Problem(text, key="model", trace=trace(error))]) from error


def _unfit_buffer(module: nn.Module) -> str:
    for name, _ in module.named_buffers():
        return f"the buffer `{name}` is state outside the parameters, which is neither averaged nor protected"
    return ""


def _unfit_parameters(module: nn.Module) -> str:
    trainable = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    if not any(parameter.numel() for _, parameter in trainable):
        return "the model has no trainable parameters"
    for name, parameter in trainable:
        if parameter.dtype != torch.float32:
            return f"the parameter `{name}` has type {parameter.dtype}; expected torch.float32"
    return ""


def _called(name: str, layer: nn.Module) -> str:
    return f"the layer `{name}` ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"


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
            f"expected a run directory or a model's file, found {file} ({error.strerror})", key="model.from"
        ) from None
    state = _state_of(file)
    wanted = module.state_dict()
    for name in wanted.keys() | state.keys():
        if name not in state or name not in wanted:
            has, lacks = ("the file", "this model") if name in state else ("this model", "the file")
            raise UserError(
                f"{has} has a parameter {name} that {lacks} has not; expected the same model", key="model.from"
            )
        shapes = tuple(wanted[name].shape), tuple(state[name].shape)
        if shapes[0] != shapes[1]:
            raise UserError(f"{name} has the shape {shapes[1]} in {file}; expected {shapes[0]}", key="model.from")
        if not bool(state[name].isfinite().all()):
            raise UserError(f"{name} is not finite everywhere in {file}; expected finite numbers", key="model.from")
    module.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
    return hashlib.sha256(content).hexdigest()


def _state_of(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, which runs no code of it."""
    try:
        state = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # torch, zipfile and pickle have many
        text = f"expected a state dict as torch.save writes it, found {file}, which torch cannot read"
        raise UserError(text, key="model.from") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"expected a state dict, names with tensors, in {file}", key="model.from")
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
        parameters = _trainable(module)
        self.names: tuple[str, ...] = tuple(parameters)
        self.shapes: tuple[tuple[int, ...], ...] = tuple(tuple(parameter.shape) for parameter in parameters.values())
        self.sizes: tuple[int, ...] = tuple(math.prod(shape) for shape in self.shapes)
        self.size = sum(self.sizes)

    def to_vector(self, module: nn.Module) -> Tensor:
        """A copy of the module's parameters, shape (M,), float32, without gradient."""
        parameters = _trainable(module)
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names]).to(torch.float32)

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
        parameters = _trainable(module)
        with torch.no_grad():
            for name, view in self.views(vector).items():
                parameters[name].copy_(view)


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
