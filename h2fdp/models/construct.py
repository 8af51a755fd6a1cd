"""Modules by name or of the user's own: built from a key, refused where they cannot be federated, and as one vector."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from threading import RLock
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from h2fdp.config.own_answers import FAILURES, Origin, failure, trace
from h2fdp.config.own_parts import WEIGHTS, OwnPart
from h2fdp.errors import Problem, UserError, not_one_of
from h2fdp.models import architectures
from h2fdp.models.finetuning import fine_tuned, kept_once, unused_adapter
from h2fdp.models.libraries import library_module
from h2fdp.models.registry import FIX, MODELS, ModelSection, start_of, tuning_of
from h2fdp.models.weights import digest_of, load_parameters
from h2fdp.wording import note_once

ModelSource = str | nn.Module | Callable[[], nn.Module]


SEEDED = RLock()  # torch has one generator for all threads of a process
_FIT: set[str | None] = set()  # named models that have passed their check


def build(
    source: ModelSource,
    shape: tuple[int, ...],
    classes: int | tuple[int, ...],
    options: Mapping[str, Any] | None = None,
    seed_key: int = 0,
    whole: bool = False,
) -> nn.Module:
    """A model on the CPU, initialised by torch's defaults, the same for the same key.

    Args:
        source: a name of the registry; or an nn.Module class or any factory that takes no arguments; or a module,
            which is copied as it is, parameters included.
        shape: one record's shape.
        classes: number of labels, or the shape of a record's scores; the model maps (n, *shape) to scores of shape
            (n, classes).
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
    outputs = (classes,) if isinstance(classes, int) else classes
    _plain_attention()
    # Torch's CPU generator keeps 32 bits of its seed, which bars it from drawing noise. Here that is harmless: initial
    # models are public, no privacy rests on them, and two seeds with equal initial models would cost nothing.
    with SEEDED, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_key % 2**63)
        module = _make(source, shape, outputs, options or {})
        if whole and not _takes(module, torch.ones(2, *shape)) and _takes(module, torch.ones(2, *shape).long()):
            module.register_forward_pre_hook(_as_whole)
        kind = repr((source, shape, classes, options, whole)) if isinstance(source, str) else None
        if kind not in _FIT:  # a run builds its model a dozen times, and each check takes eight forward passes
            check_fitness(module, shape, outputs, whole)
            _FIT.update({kind} - {None})
    return kept_once(module)


@cache
def _plain_attention() -> None:
    """Let attention be products and a softmax in this process: the fused ones have no gradients for each record."""
    torch.backends.mha.set_fastpath_enabled(False)
    for name in ("flash", "mem_efficient", "cudnn"):
        switch = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)  # of the processor's, too
        if switch is not None:
            switch(False)


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
    model: ModelSection, shape: tuple[int, ...], classes: int | tuple[int, ...], seed_key: int, whole: bool = False
) -> Callable[[], nn.Module]:
    """A builder of the model of a `model:` section, with the same initial parameters each time; see `build`."""
    source, file = source_of(model, shape, classes), start_of(model)
    if file is not None and tuning_of(model) is not None:  # what is frozen is on every host as the file has it
        source = partial(_begun, cast("Callable[[], nn.Module]", source), Path(file))
    if isinstance(model, OwnPart):
        return partial(_build_own, source, model.origin, shape, classes, seed_key, whole)
    return partial(build, source, shape, classes, model.architecture, seed_key)


def source_of(model: ModelSection, shape: tuple[int, ...], classes: int | tuple[int, ...]) -> ModelSource:
    """The name of a model, or a function that makes it: with `train`, `lora` and `fix` if they are stated.

    Of a module of a library, `fix` is the default.
    """
    tuning, outputs = tuning_of(model), (classes,) if isinstance(classes, int) else classes
    if not isinstance(model, OwnPart):
        made = partial(_make, model.name, shape, outputs, model.architecture)
        return model.name if tuning is None else partial(fine_tuned, made, tuning)
    fix = model.given.get(FIX, bool(model.library))
    if not isinstance(fix, bool | None):
        raise UserError(f"expected fix: true or false, found {fix}", model.where, model.key)
    function = partial(library_module, model, shape, outputs[-1]) if model.library else model.function
    function = function if tuning is None else partial(fine_tuned, function, tuning)
    return partial(_fixed, function, FIX in model.given) if fix else function


def begin(module: nn.Module, model: ModelSection) -> str | None:
    """Put the parameters with which training starts into a module, in place.

    Returns:
        the SHA-256 of their file or folder; None where they are random.

    Raises:
        UserError: see `load_parameters`.
    """
    if (file := start_of(model)) is not None:
        return _load(module, Path(file), tuning_of(model) is not None)
    weights = model.given.get(WEIGHTS) if isinstance(model, OwnPart) and model.library else None
    return None if weights is None else digest_of(Path(weights))  # loaded where the module was made


def _begun(function: Callable[[], nn.Module], file: Path) -> nn.Module:
    module = function()
    _load(module, file, tuned=True)
    return module


def _load(module: nn.Module, file: Path, tuned: bool) -> str:
    """Load a file, which need not have what is trained where a part of the model is."""
    return load_parameters(module, file, frozen=tuned, fresh=_trainable(module) if tuned else ())


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)  # lazy ones have no size yet


def _fixed(function: Callable[[], nn.Module], stated: bool = True) -> nn.Module:
    """A user's module with group norm in place of batch norm, as Opacus replaces it; all else stays as it is.

    Batch norm in eval mode mixes nothing. Frozen layers belong to a model that was trained with their statistics, so
    they keep all but their mode, which becomes eval. Vectors (BatchNorm1d) are one group: where a group is a single
    value, that value becomes 0.
    """
    made = function()
    if not isinstance(made, nn.Module):
        return made
    new: dict[nn.Module | None, nn.Module] = {}
    replaced, kept = list[str](), list[str]()
    for name, layer in made.named_modules():  # each once, though it may have several places
        if _is_frozen(made, name):
            kept += [name] * (layer.training and isinstance(layer, _BatchNorm | _DropoutNd))
            layer.training = False
        elif type(layer) in _BATCH_NORMS and isinstance(layer, _BatchNorm) and _mixes(layer):
            groups = 1 if isinstance(layer, nn.BatchNorm1d) else math.gcd(32, layer.num_features)
            new[layer] = nn.GroupNorm(groups, layer.num_features, affine=layer.affine)
            replaced.append(name)
    for parent in [*made.modules()]:
        for name, child in parent._modules.items():
            parent._modules[name] = new.get(child, child)
    what = {"group norm takes the place of batch norm in": replaced, "eval mode, for frozen parameters, in": kept}
    said = "; ".join(f"{text} {_some(names)}" for text, names in what.items() if names)
    if said or stated:
        note_once(f"model.fix: {said or 'there is nothing to fix'}")
    return new.get(made, made)


def _is_frozen(made: nn.Module, name: str) -> bool:
    """Whether all parameters of a layer are; of one that has none, those of the first module around it that has any."""
    while not (parameters := [*made.get_submodule(name).parameters()]) and name:
        name = name.rpartition(".")[0]
    return bool(parameters) and not any(each.requires_grad for each in parameters)


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 5 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _mixes(layer: _BatchNorm) -> bool:
    """Whether it normalises by the records of a batch."""
    return layer.training or layer.running_mean is None


def _build_own(
    function: ModelSource,
    origin: Origin,
    shape: tuple[int, ...],
    classes: int | tuple[int, ...],
    seed_key: int,
    whole: bool,
) -> nn.Module:
    try:
        return build(function, shape, classes, None, seed_key, whole)
    except UserError as error:
        raise origin.located(error) from error.__cause__


def _make(
    source: ModelSource, shape: tuple[int, ...], outputs: tuple[int, ...], options: Mapping[str, Any]
) -> nn.Module:
    if isinstance(source, str):
        if source not in MODELS:
            raise UserError(not_one_of(source, sorted(MODELS)), key="model")
        model = MODELS[source]
        builder: Callable[..., nn.Module] = getattr(architectures, model.builder)
        classes = outputs if model.of_sequences else outputs[-1]
        return builder(shape, classes, **{**model.model_validate({}).options(), **options})
    if isinstance(source, nn.Module):
        return copy.deepcopy(source)
    name = getattr(source, "__name__", "the factory")
    try:
        module = source()
    except UserError:  # of a library's, whose arguments we know
        raise
    except FAILURES as error:
        text = f"{name}() cannot be made without arguments: {failure(error)}"
        raise UserError([Problem(text, key="model", trace=trace(error))]) from error
    if not isinstance(module, nn.Module):
        raise UserError(f"{name}() must give an nn.Module, found {type(module).__name__}", key="model")
    return module


def check_fitness(module: nn.Module, shape: tuple[int, ...], outputs: tuple[int, ...], whole: bool = False) -> None:
    """Refuse a module that cannot be federated, with the reason.

    Runs the module on a few records, in the modes (train or eval) that its layers have; afterwards lazy parameters are
    there. Those draw from torch's global generator.

    Args:
        whole: inputs are whole numbers.

    Raises:
        UserError: batch norm or any other mixing of records, buffers that a forward pass changes, random numbers in it
            (dropout), inputs that it changes, no trainable parameter, parameters that are not 32-bit floats, an output
            that is not (n, *outputs).
    """
    if reason := _unfit_layer(module) or unfit_forward(module, shape, outputs, whole) or _unfit_parameters(module):
        raise UserError(reason, key="model")
    if name := unused_adapter(module, unlike(module, shape, whole)):
        text = f"{name} does not use its adapter: the module around it reads its weight, as nn.MultiheadAttention does"
        raise UserError(f"{text}; expected linear layers that are called", key="model.lora.layers")


def _unfit_layer(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and not layer.training and _mixes(layer):
            text = "batch norm leaks in eval mode, too, where it has no running statistics"
            return f"{_called(name, layer)}: {text}: use GroupNorm"
        if isinstance(layer, _BatchNorm) and _mixes(layer):
            return f"{_called(name, layer)}: batch norm leaks and cannot be averaged: use GroupNorm, or {_HINT}"
        if isinstance(layer, _DropoutNd) and layer.p > 0 and layer.training:
            return f"{_called(name, layer)}: {_RANDOM}"
    return ""


_HINT = (
    'model: {name: "module:Name", fix: true}, which replaces it; of a trained backbone, freeze the layer and put it in '
    "eval mode"
)
_RANDOM = (
    "random numbers in the forward pass (dropout) come from torch's own generator and are not reproducible; "
    "leave it out, or put it in eval mode"
)
_SMALL, _LARGE = [4, 0], [3, 2]  # of the records of `unlike`


def unlike(module: nn.Module, shape: tuple[int, ...], whole: bool) -> Tensor:
    """(7, *shape) random records from 0 to 1: two small, two large, nothing, ones, any.

    Without one of them the largest, the least and the mean value of a batch are others. Numbers of words go as far as
    all embeddings have some.
    """
    x = torch.rand(7, *shape, generator=torch.Generator().manual_seed(0))
    x[:2] *= 0.1
    x[2:4] = 1 - 0.1 * x[2:4]
    x[4], x[5] = 0.0, 1.0
    if not whole:
        return x
    words = [each.num_embeddings for each in module.modules() if isinstance(each, nn.Embedding)]
    return (x * (min(words, default=2) - 1)).round()


def unfit_forward(module: nn.Module, shape: tuple[int, ...], outputs: tuple[int, ...], whole: bool) -> str:
    """A problem that a few records show in the module: failures, the output's shape, randomness, mixing, state."""
    first = _scores(module, torch.ones(2, *shape))  # lazy layers are there now
    if not isinstance(first, Tensor) or first.shape != (2, *outputs):
        actual = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        return f"the model must map 2 records of shape {shape} to scores of shape {(2, *outputs)}, found {actual}"
    if bool(first.isnan().any()):
        return f"the model's scores of two records of shape {shape} are NaN; expected numbers"
    records = unlike(module, shape, whole)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    given = records.clone()
    graded = _scores(module, given, graded=True)
    if not _equal(given, records):
        return "the forward pass changes its input, the records themselves; expected x = x - 1 for x -= 1"
    again = _scores(module, given)
    for name, buffer in module.named_buffers():
        if name not in buffers or not _equal(buffer, buffers[name]):
            text = f"the forward pass changes the buffer `{name}`, state that is neither averaged nor protected"
            return f"{text}; expected one that stays, as in eval mode"
    if graded.shape != (7, *outputs):  # a shape that holds for two records by chance
        return f"the model must map 7 records to scores of shape {(7, *outputs)}, found {tuple(graded.shape)}"
    if not _equal(_scores(module, given), again):
        return _RANDOM
    for rows in (_SMALL, _LARGE, [0]):
        scores = _scores(module, given[rows])
        if scores.shape != (len(rows), *outputs):
            actual = tuple(scores.shape)
            expected = (len(rows), *outputs)
            return f"the model must map {len(rows)} records to scores of shape {expected}, found {actual}"
        if not torch.allclose(scores, again[rows], rtol=1e-3, atol=1e-5, equal_nan=True):
            return "a record's scores depend on the other records of its batch, so its gradient cannot be clipped"
    return ""


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal numbers; NaN, as of the logarithm of nothing, equals itself."""
    return one.shape == other.shape and bool((one.eq(other) | (one.isnan() & other.isnan())).all())


def _scores(module: nn.Module, x: Tensor, graded: bool = False) -> Any:
    """The outputs of a module for records x (n, *shape).

    Raises:
        UserError: it fails.
    """
    try:
        with torch.set_grad_enabled(graded):
            return module(x)
    except UserError:
        raise
    except FAILURES as error:
        count = {1: "one record", 2: "two records"}.get(len(x), f"{len(x)} records")
        text = f"the model fails on {count} of shape {tuple(x.shape[1:])} and type {x.dtype}: {failure(error)}"
        raise UserError([Problem(text, key="model", trace=trace(error))]) from error


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


class ParameterLayout:
    """The places of trainable parameters in the vector of length M, in the order of `named_parameters()`.

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
            name: piece.view((*stacked, *shape))
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
