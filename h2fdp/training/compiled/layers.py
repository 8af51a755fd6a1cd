"""A block of records through a chain of linear layers, forward and back."""

from __future__ import annotations

import math

import numpy as np

from h2fdp.training.compiled.arrays import Floats, Memory, Network, Rules
from h2fdp.training.compiled.jit import inlined, kernel
from h2fdp.training.compiled.losses import add_contrast, softmax
from h2fdp.training.compiled.vectors import (
    ROWS,
    WIDE,
    dot_products,
    dot_products_of_one,
    matrix,
    part,
    row_sums,
    row_sums_of_one,
)

BLOCK = ROWS  # records that go through the chain at once
NO_ACTIVATION, RELU, TANH, SIGMOID, SOFTMAX = range(5)


@kernel
def _products(rows: Floats, weights: Floats, out: Floats) -> None:
    """out (ROWS, O) = rows (ROWS, K) times weights (O, K), transposed."""
    outputs = weights.shape[0]
    whole = outputs - outputs % WIDE
    for c in range(0, whole, WIDE):
        dot_products(rows, weights, out, c)
    for c in range(whole, outputs):
        dot_products_of_one(rows, weights, out, c)


@inlined
def add_rows(rows: Floats, factors: Floats, out: Floats) -> None:
    """out (T, K) += factors (ROWS, T), transposed, times rows (ROWS, K)."""
    whole = out.shape[0] - out.shape[0] % WIDE
    for t in range(0, whole, WIDE):
        row_sums(rows, factors, out, t)
    for t in range(whole, out.shape[0]):
        row_sums_of_one(rows, factors, out, t)


@kernel
def clear(vector: Floats) -> None:
    """All zeros."""
    for k in range(vector.shape[0]):
        vector[k] = np.float32(0.0)


@kernel
def block_of(memory: Floats, network: Network, layer: int) -> Floats:
    """(BLOCK, width) the part of a block's memory before a layer; behind the last one it is that of the scores."""
    layers = network.inputs.shape[0]
    width = network.inputs[layer] if layer < layers else network.outputs[layers - 1]
    place = network.places[layer]
    block: Floats = matrix(memory, place, BLOCK, width)
    return block


@kernel
def _activate(kind: int, values: Floats) -> None:
    """What follows a layer, in place."""
    for r in range(values.shape[0]):
        if kind == RELU:
            for c in range(values.shape[1]):
                if values[r, c] <= 0.0:  # undefined numbers stay
                    values[r, c] = 0.0
        elif kind == TANH:
            for c in range(values.shape[1]):
                values[r, c] = math.tanh(values[r, c])
        elif kind == SIGMOID:
            for c in range(values.shape[1]):
                values[r, c] = np.float32(1.0) / (np.float32(1.0) + math.exp(-values[r, c]))
        elif kind == SOFTMAX:
            softmax(values[r])


@kernel
def _activate_back(kind: int, values: Floats, deltas: Floats) -> None:
    """From the gradient in what an activation gave to that in what it took, in place."""
    one = np.float32(1.0)
    for r in range(values.shape[0]):
        if kind == RELU:
            for c in range(values.shape[1]):
                if values[r, c] <= 0.0:
                    deltas[r, c] = 0.0
        elif kind == TANH:
            for c in range(values.shape[1]):
                deltas[r, c] *= one - values[r, c] * values[r, c]
        elif kind == SIGMOID:
            for c in range(values.shape[1]):
                deltas[r, c] *= values[r, c] * (one - values[r, c])
        elif kind == SOFTMAX:
            mean = np.float32(0.0)
            for c in range(values.shape[1]):
                mean += deltas[r, c] * values[r, c]
            for c in range(values.shape[1]):
                deltas[r, c] = values[r, c] * (deltas[r, c] - mean)


@inlined
def forward(model: Floats, network: Network, values: Floats, layers: int) -> None:
    """The first layers of the chain, on the records of a block."""
    for layer in range(layers):
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        out = block_of(values, network, layer + 1)
        _products(block_of(values, network, layer), matrix(model, first, outputs, inputs), out)
        if network.biased[layer]:
            biases = part(model, first + outputs * inputs, outputs)
            for r in range(BLOCK):
                for c in range(outputs):
                    out[r, c] += biases[c]
        _activate(network.activations[layer], out)


@kernel
def backward(model: Floats, network: Network, rules: Rules, memory: Memory) -> None:
    """From the gradients in the scores to those in what each layer gives, for the records of a block."""
    layers = network.inputs.shape[0]
    for layer in range(layers - 1, -1, -1):
        values, deltas = block_of(memory.values, network, layer + 1), block_of(memory.deltas, network, layer + 1)
        _activate_back(network.activations[layer], values, deltas)
        if layer == 0:
            return
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        weights = matrix(model, first, outputs, inputs)
        before = block_of(memory.deltas, network, layer)
        clear(part(memory.deltas, network.places[layer], BLOCK * inputs))
        whole = outputs - outputs % BLOCK
        for c in range(0, whole, BLOCK):
            turned = matrix(memory.turned, 0, BLOCK, BLOCK)
            for r in range(BLOCK):
                for t in range(BLOCK):
                    turned[t, r] = deltas[r, c + t]
            add_rows(matrix(model, first + c * inputs, BLOCK, inputs), turned, before)
        for c in range(whole, outputs):
            for r in range(BLOCK):
                delta = deltas[r, c]
                for k in range(inputs):
                    before[r, k] += delta * weights[c, k]
        if layer == layers - 1 and rules.contrast != 0.0:
            for r in range(BLOCK):
                add_contrast(
                    rules,
                    block_of(memory.values, network, layer)[r],
                    block_of(memory.received, network, layer)[r],
                    block_of(memory.previous, network, layer)[r],
                    before[r],
                )
