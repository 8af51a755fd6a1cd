"""Which models, losses and objectives have compiled steps, and the numbers that stand for them. Needs no numba."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module

from torch import nn

from h2fdp.training.gradients.chain import is_trained_as_it_is
from h2fdp.training.local_objective import LocalObjective, closed_form_of
from h2fdp.training.losses import CrossEntropy, Hinge, LabelSmoothing, Loss

_ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softmax)
_LOSSES = (CrossEntropy, LabelSmoothing, Hinge)


@dataclass(frozen=True)
class LinearLayer:
    """A layer of a chain and what follows it.

    Attributes:
        activation: its class; None for none.
    """

    inputs: int
    outputs: int
    biased: bool
    activation: type[nn.Module] | None = None


def numba_is_there() -> bool:
    """Whether kernels can be compiled here: numba may be installed and refuse its NumPy."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def linear_chain(module: nn.Module) -> list[LinearLayer] | str:
    """The layers of a module that is a chain of Linear layers, each followed by at most one activation; else why not.

    >>> linear_chain(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)))[1]
    LinearLayer(inputs=3, outputs=2, biased=False, activation=None)
    >>> linear_chain(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)))
    'it compiles chains of Linear layers, and the model has the layer 0 (Conv2d)'
    """
    if not is_trained_as_it_is(module):
        return "the model has hooks, frozen parameters, or parameters that two layers share"
    layers: list[LinearLayer] = []
    for name, part in _parts(module, ""):
        known = type(part) in (nn.Linear, *_ACTIVATIONS, nn.Identity) or _flattens(part)
        if not known:
            return f"it compiles chains of Linear layers, and the model has the layer {name} ({type(part).__name__})"
        if isinstance(part, nn.Linear):
            if {held for held, _ in part.named_parameters()} - {"weight", "bias"}:
                return f"the layer {name} has other parameters than weights and biases"
            if layers and layers[-1].outputs != part.in_features:
                return f"the layer {name} does not take what the one before gives"
            layers.append(LinearLayer(part.in_features, part.out_features, part.bias is not None))
        elif isinstance(part, _ACTIVATIONS):
            if not layers or layers[-1].activation is not None:
                return f"the activation {name} ({type(part).__name__}) does not directly follow a Linear layer"
            if isinstance(part, nn.Softmax) and part.dim not in (1, -1):
                return f"the layer {name} (Softmax) is not over the outputs of a layer"
            last = layers.pop()
            layers.append(LinearLayer(last.inputs, last.outputs, last.biased, type(part)))
    return layers or "the model has no Linear layer"


def why_not_compiled(
    module: nn.Module, objective: LocalObjective, loss: Loss, shape: tuple[int, ...] | None = None
) -> str | None:
    """What a compiled engine lacks for these, as the end of a sentence; None where it can train them.

    Args:
        shape: one record's; None where it is not known.
    """
    layers = linear_chain(module)
    if isinstance(layers, str):
        return layers
    if shape is not None and (math.prod(shape) != layers[0].inputs or (len(shape) > 1 and not _flattens_first(module))):
        return f"the model does not begin by flattening records of shape {shape}"
    if type(loss) not in _LOSSES:
        return "it compiles the losses cross-entropy, label-smoothing and hinge, and no loss of your own"
    if closed_form_of(objective) is None:
        return "it compiles the built-in objectives, and none of your own"
    return None


def _parts(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """The leaves of nested sequences, in their order, by name."""
    if type(module) is nn.Sequential:
        return [part for name, child in module.named_children() for part in _parts(child, f"{prefix}{name}.")]
    return [(prefix.removesuffix("."), module)]


def _flattens(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def _flattens_first(module: nn.Module) -> bool:
    for _, part in _parts(module, ""):
        if _flattens(part) or isinstance(part, nn.Linear):
            return _flattens(part)
    return False
