"""Gradients of records by what enters and leaves the layers of any module of a library, in one pass forward and back.

Layers with trained parameters are tapped: the gradient of a record in their weights follows from what entered and from
the gradient in what left, so its norm is known without it, and clipped gradients are summed without a second pass
(book-keeping, Bu et al. 2022). Nothing goes back below the first trained layer. Attention is made of linear layers, or
is `nn.MultiheadAttention`, whose linear maps are tapped where they are computed. A parameter of no layer that all
records share, as of places (1, L, D), is given to each record as one of its own.

A module sees many records at once here. A library's code alone is trusted not to mix them; modules with code of the
user's see records one by one (`FunctionalGradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from h2fdp.models.construct import ParameterLayout
from h2fdp.models.finetuning import Factor
from h2fdp.training.gradients.convolution import Convolution
from h2fdp.training.gradients.layers import Linear, windows_of
from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    InPlace,
    PerExampleGradients,
    Target,
    rounded_up,
    variants_apart,
)
from h2fdp.training.losses import Loss

_LIBRARIES = {"torch", "torchvision", "timm", "transformers", "peft", "h2fdp"}
_KNOWN = (nn.Linear, Factor, nn.Conv2d, nn.Embedding, nn.LayerNorm, nn.GroupNorm)
_VALUES_AT_ONCE = {"cpu": 50_000_000, "cuda": 2_000_000_000}  # that layers are given and give, of the records of a pass

AddClipped = Callable[[list[str], list[PerExampleGradients], Tensor, Target], None]
AllCalls = dict[str | tuple[str, int], list[tuple[Tensor, Tensor]]]  # by layer, or by parameter and row of it
Calls = Sequence[tuple[Tensor, Tensor]]  # what a layer was given, and what it gave, or the gradient in that


def tapped_layers(module: nn.Module) -> dict[str, nn.Module] | str:
    """The layers whose parameters are trained, by name; or a sentence on why they cannot be tapped."""
    found, within = dict[str, nn.Module](), set[str]()
    trained = [id(each) for _, each in module.named_parameters(remove_duplicate=False) if each.requires_grad]
    if len(trained) > len(set(trained)):
        return "layers share parameters"
    for name, layer in module.named_modules():
        code = [type(layer), *layer._forward_hooks.values(), *layer._forward_pre_hooks.values()]
        code = [getattr(each, "func", each) for each in code]
        if strange := [each for each in code if getattr(each, "__module__", "").partition(".")[0] not in _LIBRARIES]:
            return f"{getattr(strange[0], '__name__', strange[0])} is no library's, and might mix records"
        attends = type(layer) is nn.MultiheadAttention and layer.bias_k is None and layer.in_proj_weight is not None
        own = dict(layer.named_parameters(recurse=attends))
        if not any(each.requires_grad for each in own.values()) or name in within:
            continue
        if attends:
            found[name] = layer
            within.add(f"{name}.out_proj".lstrip("."))
            continue
        shared = all(each.dim() > 1 and len(each) == 1 for each in own.values())
        if shared and not type(layer).__module__.startswith("torch.nn."):
            found[name] = layer
            continue
        odd = type(layer) is nn.Conv2d and windows_of(layer) is None
        if not (type(layer) in _KNOWN or _is_usual_norm(layer)) or not own.keys() <= {"weight", "bias"} or odd:
            return f"norms of gradients in {name} ({type(layer).__name__}) are not known without the gradients"
        found[name] = layer
    return found


def _is_usual_norm(layer: nn.Module) -> bool:
    """Whether it is a layer norm of a library that is torch's but for its speed."""
    return isinstance(layer, nn.LayerNorm) and type(layer).__name__ == "LayerNorm"


class TappedGradients:
    """Clipped sums of the gradients of records, one device at a time."""

    def __init__(self, module: nn.Module, layers: dict[str, nn.Module], loss: Loss, add_clipped: AddClipped) -> None:
        self._module, self._loss, self._add_clipped = module, loss, add_clipped
        self._flat = ParameterLayout(module)
        attention = [name for name, layer in layers.items() if isinstance(layer, nn.MultiheadAttention)]
        each = [(f"{name}.", part) for name in attention for part in ("in_proj_", "out_proj.")]
        self._maps = {f"{name}{part}weight".lstrip("."): f"{name}{part}bias".lstrip(".") for name, part in each}
        self._layers = {name: layer for name, layer in layers.items() if type(layer) in _KNOWN or _is_usual_norm(layer)}
        bare = layers.keys() - self._layers.keys() - set(attention)
        self._shared = [name for name in self._flat.names if name.rpartition(".")[0] in bare]
        self._at_once = 0  # records of a pass; 0 before the first

    def padding(self, width: int) -> int:
        """None, see `FunctionalGradients.padding`."""
        return 0

    def sums(
        self, models: Tensor, x: Tensor, y: Tensor, shares: Tensor, others: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """(n, M) clipped sums, see `LayeredGradients.sums`; no device's sum depends on another one."""
        if not self._at_once:
            calls, _ = self._calls(models[0], x[0, :1])
            for name, each in calls.items():
                if isinstance(name, str) and any(
                    len(given) != 1 or len(gave) != 1 for given, gave in each
                ):  # places, or parts of records
                    raise ValueError(f"{name} is not called with a row for each record")
            values = sum(given.numel() + gave.numel() for each in calls.values() for given, gave in each)
            self._at_once = max(1, _VALUES_AT_ONCE[x.device.type] // max(1, values))
        times = x.shape[1] // shares.shape[1]
        at_once = max(1, self._at_once // times)
        summed = models.new_zeros(models.shape)
        for device in range(len(models)):
            target = InPlace(self._flat.views(summed[device : device + 1]), kept=1.0, factor=1.0)
            for first in range(0, shares.shape[1], at_once):
                part, own = slice(first, first + at_once), slice(first * times, (first + at_once) * times)
                calls, scores = self._calls(models[device], x[device, own])
                gradients = self._gradients(calls, self._loss.each(scores, y[device, own]).sum() / times)
                names, records = zip(*gradients, strict=True)
                if times > 1:
                    records = tuple(each.merged(times) for each in records)
                self._add_clipped(list(names), list(records), shares[device : device + 1, part], target)
        return summed

    def _calls(self, model: Tensor, x: Tensor) -> tuple[AllCalls, Tensor]:
        """The calls of each layer, and the scores (W, ...) of records x (W, ...)."""
        calls: AllCalls = {name: [] for name in self._layers}
        views = self._flat.views(model.detach())
        for name in self._shared:
            views[name] = views[name].expand(len(x), *views[name].shape[1:]).clone().requires_grad_()
            calls[name, 0] = [(views[name], views[name])]

        def tap(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str) -> Tensor:
            given, left = inputs[0].detach(), output if output.requires_grad else output.detach().requires_grad_()
            if len(given) == len(left) == 1:  # of what all records share, as places, each has a gradient of its own
                given, left = (each.expand(len(x), *each.shape[1:]) for each in (given, left))
            calls[name].append((given, left))
            return left.clone()  # what follows may work in place

        with ExitStack() as taps, torch.enable_grad():
            for name, layer in self._layers.items():
                taps.callback(layer.register_forward_hook(partial(tap, name=name)).remove)
            if self._maps:
                held = dict(self._module.named_parameters()) | views
                # Weights that need gradients keep torch from its kernel for inference, where nothing is seen.
                views |= {name: held[name].detach().requires_grad_() for name in self._maps}
                taps.enter_context(_TappedMaps({name: views[name] for name in self._maps}, len(x), calls))
            scores: Tensor = functional_call(self._module, views, (x,))
        return calls, scores

    def _gradients(self, calls: AllCalls, loss: Tensor) -> Iterator[tuple[str, PerExampleGradients]]:
        """Each parameter's name, with the gradients of records in it."""
        left = [gave for each in calls.values() for _, gave in each]
        deltas = iter(torch.autograd.grad(loss, left, materialize_grads=True))
        of_calls = {key: [(given, next(deltas).float()) for given, _ in each] for key, each in calls.items()}
        for name in self._shared:
            yield name, ExplicitGradients(of_calls[name, 0][0][1].flatten(1)[None])
        for weight, bias in self._maps.items():
            rows = sorted(key[1] for key in of_calls if isinstance(key, tuple) and key[0] == weight)
            parts = [_joined(of_calls[weight, row]) for row in rows]
            for name, gradients in zip((weight, bias), _of_maps(parts), strict=False):
                if name in self._flat.names:
                    yield name, gradients
        for name, layer in self._layers.items():
            pairs = of_calls[name]
            own = [each for each, _ in layer.named_parameters(recurse=False)]
            for parameter, gradients in zip(own, _of_layer(layer, own, pairs) if pairs else (), strict=False):
                if getattr(layer, parameter).requires_grad:
                    yield f"{name}.{parameter}".lstrip("."), gradients


class _TappedMaps(TorchFunctionMode):
    """Taps the linear maps of torch's attention, of inputs (L, W, K) or (L W, K).

    Args:
        weights: of the maps, by name; rows of one may be a map by themselves.
        records: W.
        calls: of (name, first row), to which inputs (W, L, K) and outputs are added.
    """

    def __init__(self, weights: Mapping[str, Tensor], records: int, calls: AllCalls) -> None:
        super().__init__()
        self._weights, self._records, self._calls = weights, records, calls
        # Torch's own code, but for how it computes its maps; by itself it would ask this mode again.
        names = vars(functional) | {"linear": self._linear, "has_torch_function": lambda _: False}
        names["_in_projection_packed"] = FunctionType(functional._in_projection_packed.__code__, names)  # type: ignore[attr-defined]
        code = functional.multi_head_attention_forward
        self._attention = FunctionType(code.__code__, names, argdefs=code.__defaults__)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Whatever torch is asked for meanwhile."""
        own = self._attention if function is functional.multi_head_attention_forward else function
        return own(*args, **(kwargs or {}))

    def _linear(self, given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        output = functional.linear(given, weight, bias)
        for name, whole in self._weights.items():
            row, within = divmod(weight.data_ptr() - whole.data_ptr(), whole.stride(0) * whole.element_size())
            if 0 <= row < len(whole) and not within:
                if given.dim() == 3 and given.shape[1] != self._records:
                    raise ValueError(f"{name} is not called with a row for each record")
                own = _by_record(given.detach(), self._records), output
                self._calls.setdefault((name, row), []).append(own)
        return output.clone()


def _by_record(values: Tensor, records: int) -> Tensor:
    """(W, L, K) of (L, W, K) or (L W, K)."""
    return values.reshape(-1, records, values.shape[-1]).transpose(0, 1)


def _joined(calls: Calls) -> tuple[Tensor, Tensor]:
    """(1, W, L, K) inputs and (1, W, L, O) gradients in outputs, of the positions of all calls."""
    given, deltas = zip(*((given, _by_record(delta, len(given))) for given, delta in calls), strict=True)
    return torch.cat(given, dim=1)[None], torch.cat(deltas, dim=1)[None]


def _of_maps(parts: Sequence[tuple[Tensor, Tensor]]) -> Iterator[PerExampleGradients]:
    """The gradients in a weight and a bias, of rows after rows; nothing of what was not called."""
    if not parts:
        return
    if len(parts) == 1:
        yield from cast("Sequence[PerExampleGradients]", Linear(("weight", "bias")).gradients(*parts[0]))
        return
    yield ExplicitGradients(torch.cat([(delta.transpose(2, 3) @ given).flatten(2) for given, delta in parts], dim=2))
    yield ExplicitGradients(torch.cat([delta.sum(dim=2) for _, delta in parts], dim=2))


def _of_layer(layer: nn.Module, names: Sequence[str], calls: Calls) -> Sequence[PerExampleGradients]:
    """The gradients of W records, over all calls, in the parameters of a layer; of a stack of one device."""
    if isinstance(layer, nn.LayerNorm | nn.GroupNorm):
        parts = [_of_norm(layer, given.float(), delta) for given, delta in calls]
        return [ExplicitGradients(torch.stack(each).sum(dim=0)[None]) for each in zip(*parts, strict=True)]
    if isinstance(layer, nn.Embedding):
        words = torch.cat([given.flatten(1) for given, _ in calls], dim=1)
        deltas = torch.cat([delta.reshape(len(words), -1, delta.shape[-1]) for _, delta in calls], dim=1)
        padding = words == (-1 if layer.padding_idx is None else layer.padding_idx)
        return [EmbeddingGradients(words, deltas.masked_fill(padding[..., None], 0.0), layer.num_embeddings)]
    if isinstance(layer, nn.Conv2d):
        windows = windows_of(layer)
        assert windows is not None, "a convolution that is known"
        gradients = Convolution(tuple(names), windows).of_records([(given.float(), delta) for given, delta in calls])
    else:
        count = len(calls[0][0])
        given = torch.cat([each.float().reshape(count, -1, each.shape[-1]) for each, _ in calls], dim=1)
        deltas = torch.cat([each.reshape(count, -1, each.shape[-1]) for _, each in calls], dim=1)
        gradients = Linear(tuple(names)).gradients(given[None], deltas[None])
    return cast("Sequence[PerExampleGradients]", gradients)


def _of_norm(layer: nn.LayerNorm | nn.GroupNorm, given: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """(W, size) the gradients of records in weights and biases, of one call."""
    if isinstance(layer, nn.GroupNorm):
        normed = functional.group_norm(given, layer.num_groups, eps=layer.eps)
        weights, biases = (each.flatten(2).sum(dim=2) if each.dim() > 2 else each for each in (delta * normed, delta))
        return weights, biases
    normed = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    size = normed[0].numel() // max(1, normed[0].numel() // layer.weight.numel())
    weights, biases = (each.reshape(len(given), -1, size).sum(dim=1) for each in (delta * normed, delta))
    return weights, biases


@dataclass(frozen=True)
class EmbeddingGradients:
    """The gradients of W records in the rows of an embedding, of a stack of one device.

    Attributes:
        words: (W, L) which row each position has.
        deltas: (W, L, D) gradients in what the positions got.
        rows: of the embedding.
    """

    words: Tensor
    deltas: Tensor
    rows: int

    def squared_norms(self) -> Tensor:
        """(1, W): positions of equal words add up."""
        products = torch.bmm(self.deltas, self.deltas.transpose(1, 2))
        return rounded_up(products.mul_(self.words[:, :, None] == self.words[:, None, :]))[None]

    def add(self, factors: Tensor | None, name: str, target: Target) -> None:
        """Add the records' weighted gradients to the target, see `GhostGradients.add`."""
        assert factors is not None, "records are weighed"
        weighted = (self.deltas * factors[0, :, None, None]).flatten(0, 1)
        summed = weighted.new_zeros(self.rows, weighted.shape[1]).index_add_(0, self.words.flatten(), weighted)
        target.add(name, summed[None])

    def merged(self, times: int) -> EmbeddingGradients:
        """Sums over the variants of each record, see `PerExampleGradients.merged`."""
        words, deltas = (variants_apart(each, 0, times).flatten(1, 2) for each in (self.words, self.deltas))
        return replace(self, words=words, deltas=deltas)

    def without(self, bad: Tensor) -> EmbeddingGradients:
        """The gradients, those of bad records 0."""
        return replace(self, deltas=self.deltas.masked_fill(bad[0, :, None, None], 0.0))
