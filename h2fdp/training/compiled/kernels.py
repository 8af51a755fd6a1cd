"""The compiled arithmetic of local steps.

Records go through the chain some at a time, against rows of weights, along the features: the records stay in the first
cache, and the innermost loops are nothing but products and sums of vectors (`vectors.py`). Sums elsewhere may be taken
in any order that the compiler finds (`reassoc`), but by the same code for each device, whoever is computed beside it.
What is not finite is not assumed away.
"""

from __future__ import annotations

import math

import numpy as np

from h2fdp.training.compiled.arrays import Carried, Drawn, Floats, Held, Integers, Memory, Network, Rules
from h2fdp.training.compiled.jit import CompiledOnce, digest_of_sources, kernel
from h2fdp.training.compiled.layers import BLOCK, add_rows, backward, block_of, clear, forward
from h2fdp.training.compiled.losses import loss_gradient
from h2fdp.training.compiled.stored_records import fetch_block, loaded
from h2fdp.training.compiled.vectors import borrowed, matrix, part

_PART = 1024  # numbers whose squares are added in float32, before the sums are added in float64


@kernel
def _clip_factor(norm: float, bound: float) -> float:
    """What a vector of this norm is multiplied by; 0 where the norm is not finite."""
    return bound / max(norm, bound) if math.isfinite(norm) else 0.0


@kernel
def _squares(vector: Floats) -> np.float32:
    total = np.float32(0.0)
    for k in range(vector.shape[0]):
        total += vector[k] * vector[k]
    return total


@kernel
def _clip_records(network: Network, bound: float, memory: Memory, count: int) -> None:
    """Scale the gradient of each of a block's records; rows that hold no record, or none that is finite, become zero.

    The gradient of a layer's weights is an outer product, whose norm is the product of norms.
    """
    layers = network.inputs.shape[0]
    for r in range(BLOCK):
        factor = 1.0 if r < count else 0.0
        if factor and math.isfinite(bound):
            total = 0.0
            for layer in range(layers):
                inputs = memory.input_norms[r] if layer == 0 else _squares(block_of(memory.values, network, layer)[r])
                own = _squares(block_of(memory.deltas, network, layer + 1)[r])
                total += np.float64(own) * (np.float64(inputs) + (1.0 if network.biased[layer] else 0.0))
            factor = _clip_factor(math.sqrt(total), bound)
        if factor == 1.0:
            continue
        for layer in range(layers):
            deltas = block_of(memory.deltas, network, layer + 1)[r]
            if factor == 0.0:  # a product with 0 would leave undefined numbers where there were infinite ones
                clear(deltas)
                clear(block_of(memory.values, network, layer)[r])
            else:
                for c in range(deltas.shape[0]):
                    deltas[c] *= np.float32(factor)


@kernel
def _add_block(network: Network, memory: Memory) -> None:
    """Add the gradients of a block's records."""
    for layer in range(network.inputs.shape[0]):
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        deltas = block_of(memory.deltas, network, layer + 1)
        weights = matrix(memory.gradient, first, outputs, inputs)
        add_rows(block_of(memory.values, network, layer), deltas, weights)
        if network.biased[layer]:
            biases = part(memory.gradient, first + outputs * inputs, outputs)
            for c in range(outputs):
                for r in range(BLOCK):
                    biases[c] += deltas[r, c]


@kernel
def _gradient(
    model: Floats,
    network: Network,
    rules: Rules,
    held: Held,
    begin: int,
    indices: Integers,
    divisor: float,
    received: Floats,
    previous: Floats,
    memory: Memory,
) -> None:
    """(M,) into `memory.gradient`: the sum over the drawn records / divisor, records and the whole clipped as asked."""
    layers, gradient = network.inputs.shape[0], memory.gradient
    clear(gradient)
    if indices.shape[0] == 0:
        return
    inputs = block_of(memory.values, network, 0)
    scores, deltas = block_of(memory.values, network, layers), block_of(memory.deltas, network, layers)
    for first in range(0, indices.shape[0], BLOCK):
        count = min(BLOCK, indices.shape[0] - first)
        fetch_block(held, begin, part(indices, first + count, indices.shape[0] - first - count))
        for r in range(BLOCK):
            if r < count:
                memory.input_norms[r] = loaded(held, begin + indices[first + r], inputs[r])
            else:
                clear(inputs[r])
        forward(model, network, memory.values, layers)
        if rules.contrast != 0.0 and layers > 1:
            for r in range(BLOCK):
                for k in range(inputs.shape[1]):
                    block_of(memory.received, network, 0)[r, k] = inputs[r, k]
                    block_of(memory.previous, network, 0)[r, k] = inputs[r, k]
            forward(received, network, memory.received, layers - 1)
            forward(previous, network, memory.previous, layers - 1)
        for r in range(BLOCK):
            if r < count:
                loss_gradient(rules, scores[r], held.y[begin + indices[first + r]], deltas[r])
            else:
                clear(deltas[r])
        backward(model, network, rules, memory)
        _clip_records(network, rules.record_norm, memory, count)
        _add_block(network, memory)
    share = np.float32(1.0 / divisor)
    for k in range(gradient.shape[0]):
        gradient[k] *= share
    if math.isfinite(rules.batch_norm):
        squares = 0.0
        for first in range(0, gradient.shape[0], _PART):
            squares += np.float64(_squares(part(gradient, first, min(_PART, gradient.shape[0] - first))))
        factor = np.float32(_clip_factor(math.sqrt(squares), rules.batch_norm))
        if factor == 0.0:
            clear(gradient)
        elif factor != 1.0:
            for k in range(gradient.shape[0]):
                gradient[k] *= factor


@kernel
def _step(
    network: Network,
    rules: Rules,
    held: Held,
    drawn: Drawn,
    carried: Carried,
    device: int,
    slot: int,
    memory: Memory,
) -> None:
    """One local step of one device."""
    way, model, received = memory.gradient, carried.models[device], carried.received[device]
    indices = part(drawn.indices[slot, device], 0, drawn.counts[slot, device])
    begin, divisor = drawn.begins[device], drawn.divisors[slot, device]
    if slot + 1 < drawn.steps[device]:
        fetch_block(held, begin, part(drawn.indices[slot + 1, device], 0, drawn.counts[slot + 1, device]))
    previous = carried.previous[device] if carried.previous.shape[0] else received
    parameters = model.shape[0]
    if rules.inner_steps:
        personal = carried.personal[device]
        for _ in range(rules.inner_steps):
            _gradient(personal, network, rules, held, begin, indices, divisor, received, previous, memory)
            if carried.noise.shape[0]:
                _add(way, carried.noise[device])
            for k in range(parameters):
                way[k] += rules.penalty * (personal[k] - model[k])
                personal[k] -= rules.inner_step_size * way[k]
        for k in range(parameters):
            way[k] = rules.penalty * (model[k] - personal[k])
    else:
        _gradient(model, network, rules, held, begin, indices, divisor, received, previous, memory)
        if carried.noise.shape[0]:
            _add(way, carried.noise[device])
        if rules.pull != 0.0:
            for k in range(parameters):
                way[k] += rules.pull * (model[k] - received[k])
    if carried.corrections.shape[0]:
        _add(way, carried.corrections[device])
    if rules.momentum != 0.0:
        velocity = carried.velocities[device]
        for k in range(parameters):
            velocity[k] = rules.momentum * velocity[k] + way[k]
            way[k] = velocity[k]
    if carried.last.shape[0] and slot == drawn.steps[device] - 1:
        last = carried.last[device]
        for k in range(parameters):
            moved = model[k] - rules.step_size * way[k]
            last[k] = model[k] - moved
            model[k] = moved
    else:
        for k in range(parameters):
            model[k] -= rules.step_size * way[k]


@kernel
def _add(vector: Floats, other: Floats) -> None:
    for k in range(vector.shape[0]):
        vector[k] += other[k]


def _entry(sources: int) -> CompiledOnce[..., None]:
    """The way in from Python; the other kernels are compiled into it.

    Numba would take its machine code from disk as long as the date of this file is the same, whatever changed in the
    others; but what a kernel closes over counts too, so it closes over a digest of them all.
    """

    def train(
        network: Network,
        rules: Rules,
        held: Held,
        drawn: Drawn,
        carried: Carried,
        memory: Memory,
        first_slot: int,
        last_slot: int,
    ) -> None:
        assert sources >= 0
        chain, records, batches = borrowed(network), borrowed(held), borrowed(drawn)
        models, used = borrowed(carried), borrowed(memory)
        for device in range(models.models.shape[0]):
            for slot in range(first_slot, min(last_slot, batches.steps[device])):
                _step(chain, rules, records, batches, models, device, slot, used)

    return CompiledOnce(train)


_train = _entry(digest_of_sources())


def memory_for(network: Network, parameters: int, compares: bool) -> Memory:
    """Of one thread."""
    block = int(network.places[-1] + BLOCK * network.outputs[-1])
    sizes = block, block, block * compares, block * compares, BLOCK, parameters, BLOCK * BLOCK
    return Memory(*(np.empty(size, np.float32) for size in sizes))


def train(
    network: Network,
    rules: Rules,
    held: Held,
    drawn: Drawn,
    carried: Carried,
    memory: Memory,
    first_slot: int,
    last_slot: int,
) -> None:
    """The local steps of all devices at the slots from the first to before the last, without the interpreter's lock."""
    _train(network, rules, held, drawn, carried, memory, first_slot, last_slot)
