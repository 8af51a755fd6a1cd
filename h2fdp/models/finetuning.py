"""Fine-tuning: which parameters of a module are trained, its low-rank adapters, and the frozen rest.

The frozen rest is neither trained nor sent, and no checkpoint has it; a process keeps it once, whatever its type. What
is trained has 32 bits, as sums, norms and noise have.

An adapter is two linear layers that hang on a layer's output, so that a record's gradient is never larger than they
are. A parametrisation of the weight (`torch.nn.utils.parametrize`) would first make the gradient of the whole weight,
for each record. Names of the module's own parameters stay, so its files fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from h2fdp.errors import UserError
from h2fdp.models.registry import FineTuning, Lora
from h2fdp.wording import note_once

_FIRST = 6  # names in a message


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern is a name, or a part of it between dots.

    >>> [fits(pattern, "blocks.0.attn.qkv.weight") for pattern in ("attn", "blocks.0.*", "attn.q*", "att", "qkv.attn")]
    [True, True, True, False, False]
    """
    return fnmatchcase(f".{name}.", f"*.{pattern}.*")


def fine_tuned(function: Callable[[], nn.Module], tuning: FineTuning) -> nn.Module:
    """The module that a function makes, of which some parameters and adapters alone are trained.

    Raises:
        UserError: a pattern that fits no name, or adapters of layers that do not use them.
    """
    module = function()
    if not isinstance(module, nn.Module):
        return module
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if any(isinstance(each, UninitializedParameter) for each in parameters.values()):
        raise UserError("expected layers that state their sizes, found lazy ones", key="model")
    trained = set(_fitting(tuning.train or (), parameters, "model.train", "parameter"))
    layers = {name: layer for name, layer in module.named_modules() if _sides(layer) is not None}
    wanted = tuning.lora.layers if tuning.lora else ()
    adapted = dict.fromkeys(
        _fitting(wanted, layers, "model.lora.layers", "linear layer")
    )  # in an order, for equal bits
    kinds = {each.dtype for each in parameters.values() if each.is_floating_point()}
    module.requires_grad_(False)
    for name in trained:
        parameters[name].requires_grad_().data = parameters[name].data.float()
    for name in adapted:
        assert tuning.lora is not None, "layers are named"
        _adapt(layers[name], tuning.lora)
    if other := kinds - {torch.float32}:
        _cast(module, other.pop())
    sizes = [sum(each.numel() for each in module.parameters() if each.requires_grad is kept) for kept in (True, False)]
    shown = [*sorted(trained)[:_FIRST], *["..."] * (len(trained) > _FIRST)]
    shown += [f"adapters of {len(adapted)} layers"] * bool(adapted)
    note_once(f"model: {sizes[0]:,} numbers are trained ({', '.join(shown)}), {sizes[1]:,} are frozen")
    return module


def _fitting(patterns: Iterable[str], names: Iterable[str], key: str, what: str) -> Iterator[str]:
    names = list(names)
    for pattern in patterns:
        found = [name for name in names if fits(pattern, name)]
        if not found:
            few = ", ".join(names[:_FIRST]) or "those of another model, as it has none"
            raise UserError(f"no {what} of the model fits {pattern}; expected names or patterns, as {few}", key=key)
        yield from found


def _sides(layer: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer; None of any other."""
    if isinstance(layer, nn.Linear) and layer.in_features:
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D" and type(layer).__module__.startswith("transformers."):  # GPT-2's linear layers
        inputs, outputs = layer.get_parameter("weight").shape
        return inputs, outputs
    return None


class Factor(nn.Linear):
    """One of the two matrices of an adapter."""

    scale: float


def _adapt(layer: nn.Module, lora: Lora) -> None:
    sides = _sides(layer)
    assert sides is not None, "a linear layer"
    layer.lora_a, layer.lora_b = Factor(sides[0], lora.rank, bias=False), Factor(lora.rank, sides[1], bias=False)
    nn.init.zeros_(layer.lora_b.weight)
    layer.lora_b.scale = (lora.alpha or lora.rank) / lora.rank
    layer.register_forward_hook(_with_adapter)


def _with_adapter(layer: Any, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    """W x + (alpha / rank) B A x, in the type of W x."""
    moved: Tensor = layer.lora_b(layer.lora_a(inputs[0].to(layer.lora_a.weight.dtype)))
    return output.add((layer.lora_b.scale * moved).to(output.dtype))


def unused_adapter(module: nn.Module, x: Tensor) -> str:
    """The name of a layer whose adapter no score of the records x depends on; empty if there is none."""
    adapters = {name: layer for name, layer in module.named_modules() if isinstance(layer, Factor)}
    if not adapters:
        return ""
    with torch.enable_grad():
        weights = [layer.weight for layer in adapters.values()]
        gradients = torch.autograd.grad(module(x).sum(), weights, allow_unused=True)
    return next((name for name, each in zip(adapters, gradients, strict=True) if each is None), "").rpartition(".")[0]


def _cast(module: nn.Module, kind: torch.dtype) -> None:
    """Layers with trained parameters compute in 32 bits, within a module of another type, and so do scores."""
    module.register_forward_pre_hook(partial(_in_type, kind=kind))
    for layer in module.modules():
        if not isinstance(layer, Factor) and any(each.requires_grad for each in layer.parameters(recurse=False)):
            layer.register_forward_pre_hook(_in_type)
            layer.register_forward_hook(_back)
    module.register_forward_hook(_scores)


def _in_type(layer: Any, inputs: tuple[Any, ...], kind: torch.dtype = torch.float32) -> tuple[Any, ...]:
    layer.given = next((each.dtype for each in inputs if isinstance(each, Tensor) and each.is_floating_point()), None)
    return tuple(each.to(kind) if isinstance(each, Tensor) and each.is_floating_point() else each for each in inputs)


def _back(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    return output.to(layer.given) if layer.given is not None and isinstance(output, Tensor) else output


def _scores(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
    return output.float() if isinstance(output, Tensor) else output


_FROZEN: WeakValueDictionary[tuple[str, str], nn.Parameter] = WeakValueDictionary()


def kept_once(module: nn.Module, device: torch.device | None = None) -> nn.Module:
    """The module on a device, whose frozen parameters are those that this process has there already, if it has them."""
    place = device or torch.device("cpu")
    for layer in module.modules():
        for name, parameter in layer._parameters.items():
            if parameter is not None and not parameter.requires_grad and parameter.device.type == "cpu":
                key = digest_of(parameter), str(place)
                layer._parameters[name] = _FROZEN.setdefault(key, _on(parameter, place))
    return module.to(place)


def _on(parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
    return parameter if device.type == "cpu" else nn.Parameter(parameter.data.to(device), requires_grad=False)


def digest_of(tensor: Tensor) -> str:
    """A digest of the type, the shape and the numbers of a tensor on a CPU."""
    data = tensor.detach().contiguous()
    digest = blake2b(repr((data.dtype, *data.shape)).encode(), digest_size=16)
    digest.update(data.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
