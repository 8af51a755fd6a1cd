"""The models, losses and objectives that have compiled steps, and the model as kernels take it. Needs no numba."""

from __future__ import annotations

import math
from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from h2fdp.training.gradients.layers import (
    Activation,
    Differentiated,
    Flattened,
    Linear,
    chain_of,
    probabilities,
)
from h2fdp.training.local_steps import LocalObjective, pull_alone
from h2fdp.training.losses import CrossEntropy, LabelSmoothing, Loss

Integers = NDArray[np.int64]
NO_ACTIVATION, RELU, SOFTMAX = range(3)
_ACTIVATIONS = {Activation(nn.ReLU): RELU, Differentiated(probabilities): SOFTMAX}
_KNOWN = "it compiles chains of Linear layers with ReLU between them, after the last one perhaps Softmax"


class Network(NamedTuple):
    """A chain of L linear layers; the weights (outputs, inputs) of each lie in a model before its biases.

    Attributes:
        inputs, outputs: (L,) widths.
        biased: (L,) whether a layer has biases.
        activations: (L,) what follows each.
        first: (L,) where a layer's weights begin in the model.
        places: (L + 1,) where the inputs of each layer, and the scores, begin in a record's values.
    """

    inputs: Integers
    outputs: Integers
    biased: NDArray[np.bool_]
    activations: Integers
    first: Integers
    places: Integers


def numba_is_there() -> bool:
    """Whether kernels can be compiled here: numba may be installed and refuse its NumPy."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def network_of(module: nn.Module) -> Network | None:
    """A module that is a chain of Linear layers, perhaps behind Flatten; None for any other.

    >>> network_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))).first
    array([ 0, 15])
    >>> network_of(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))) is None
    True
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    layers: list[tuple[int, int, bool]] = []
    activations: list[int] = []
    for place, step in enumerate(chain_of(module) or []):
        if isinstance(step, Linear):
            outputs, inputs = shapes[step.names[0]]
            if layers and layers[-1][1] != inputs:
                return None
            layers.append((inputs, outputs, len(step.names) > 1))
            activations.append(NO_ACTIVATION)
        elif step in _ACTIVATIONS and activations and activations[-1] == NO_ACTIVATION:
            activations[-1] = _ACTIVATIONS[step]
        elif not isinstance(step, Flattened) or place:
            return None
    if not layers:
        return None
    widths, scores, biased = (np.array(each) for each in zip(*layers, strict=True))
    first, places = (np.cumsum([0, *sizes]) for sizes in (scores * (widths + biased), widths))
    return Network(widths, scores, biased, np.array(activations), first[:-1], places)


def why_not_compiled(
    module: nn.Module, objective: LocalObjective, loss: Loss, shape: tuple[int, ...] | None = None
) -> str | None:
    """The reason why a compiled engine cannot train these, as the end of a sentence; None where it can.

    Args:
        shape: one record's; None where the caller has none.
    """
    network = network_of(module)
    if network is None:
        return f"{_KNOWN}, without hooks, frozen or shared parameters"
    flattens = any(isinstance(step, Flattened) for step in chain_of(module) or [])
    if shape is not None and (math.prod(shape) != network.inputs[0] or (len(shape) > 1 and not flattens)):
        return f"the model does not begin by flattening records of shape {shape}"
    if type(loss) not in (CrossEntropy, LabelSmoothing):
        return "it compiles the losses cross-entropy and label-smoothing"
    if pull_alone(objective) is None:
        return "it compiles the objectives plain, proximal, scaffold and feddyn"
    return None
