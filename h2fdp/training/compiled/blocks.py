"""A block of records through a chain of linear layers: from where they are stored to the sums of their gradients.

Records go through the chain some at a time, against rows of weights, along the features: the records stay in the first
cache, and the innermost loops are nothing but products and sums of vectors (`vectors.py`). Sums elsewhere may be taken
in any order that the compiler finds (`reassoc`), but by the same code for each device, whatever is computed with it.
What is not finite is not assumed away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numpy as np
import torch
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numpy.typing import NDArray

from h2fdp.training.compiled.chains import RELU, SOFTMAX, Integers, Network
from h2fdp.training.compiled.vectors import (
    ROWS,
    WIDE,
    dot_products,
    dot_products_of_one,
    fetch,
    matrix,
    part,
    row_sums,
    row_sums_of_one,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Floats = NDArray[np.float32]
BLOCK = ROWS  # records that go through the chain at once


class _Part(JITCodeLibrary):
    """Code that is compiled into its callers, as it is optimised here, and is never called by itself.

    So it gets no machine code of its own, for which numba takes a third of the time that compiling takes.
    """

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._verify_declare_only_symbols()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        return 0

    @property
    def codegen(self) -> _Part:
        """Itself: of the engine that numba looks for here, only `set_env` is called."""
        return self

    def set_env(self, _name: str, _environment: object) -> None:
        """Nothing: what has no machine code reads no globals."""


class _Whole(_Part):
    """Code that calls parts, which is optimised once, where it is compiled into a way in.

    Optimising all of it at each level on the way there took a quarter of the time that compiling takes. Parts with the
    innermost loops are optimised by themselves, too: otherwise some of their sums come out in another order.
    """

    def _optimize_final_module(self) -> None:
        """Nothing."""


class _PartCompiler(Compiler):
    library: type[_Part] = _Part

    def __init__(self, typing: Any, target: Any, _library: None, *rest: Any) -> None:
        super().__init__(typing, target, self.library(target.codegen(), "part"), *rest)  # type: ignore[no-untyped-call]


class _WholeCompiler(_PartCompiler):
    library = _Whole


_RELAXED = {"reassoc", "contract", "nsz", "arcp"}  # of what is fast; what is not finite is not assumed away
_OPTIONS: Any = {
    "fastmath": _RELAXED,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _PartCompiler,
}


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that is compiled into the kernels that call it.

    Its sums may be taken in any order that the compiler finds, but by the same code for each device. Python cannot call
    it: ways in from there would take a quarter of the time that compiling takes.
    """
    return cast("Callable[Parameters, Result]", numba.njit(**_OPTIONS)(function))


def composed(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that is little but calls of others: it is optimised where it is compiled into a way in, not before."""
    return cast("Callable[Parameters, Result]", numba.njit(**_OPTIONS | {"pipeline_class": _WholeCompiler})(function))


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A kernel that is compiled into the place of every call.

    What is called by name is compiled twice, by itself and with its caller, and sums come out in another order: a
    process that compiles would take the one, and processes that find the machine code on disk the other.
    """
    return cast("Callable[Parameters, Result]", numba.njit(**_OPTIONS, forceinline=True)(function))


class Stored(NamedTuple):
    """Records as they are stored, n of them; the model sees x * scale + shift.

    Attributes:
        numbers, bytes: (n, K) of one kind; of the other there are none.
        y: (n,) labels.
        scale, shift: (1,) or (K,).
    """

    numbers: Floats
    bytes: NDArray[np.uint8]
    y: Integers
    scale: Floats
    shift: Floats


class Memory(NamedTuple):
    """The memory of one call, used for block after block.

    Attributes:
        values: inputs of each layer and scores of a block.
        deltas: gradients in them.
        input_norms: (BLOCK,) squared norms of the records.
        gradient: (M,).
        turned: some scores' gradients of a block, transposed.
    """

    values: Floats
    deltas: Floats
    input_norms: Floats
    gradient: Floats
    turned: Floats


def memory_for(network: Network, parameters: int) -> Memory:
    """The memory of one thread. Torch's memory begins at cache lines, which NumPy's does not."""
    block = BLOCK * int(network.places[-1] + network.outputs[-1])
    sizes = block, block, BLOCK, parameters, BLOCK * BLOCK
    return Memory(*(torch.empty(size, dtype=torch.float32).numpy() for size in sizes))


@kernel
def block_of(memory: Floats, network: Network, layer: int) -> Floats:
    """(BLOCK, width) the part of a block's memory before a layer; behind the last one it is that of the scores."""
    layers = network.inputs.shape[0]
    width = network.inputs[layer] if layer < layers else network.outputs[layers - 1]
    place = BLOCK * network.places[layer]
    block: Floats = matrix(memory, place, BLOCK, width)
    return block


@kernel
def clear(vector: Floats) -> None:
    """All zeros."""
    for k in range(vector.shape[0]):
        vector[k] = np.float32(0.0)


@kernel
def squares(vector: Floats) -> np.float32:
    """The squared norm."""
    total = np.float32(0.0)
    for k in range(vector.shape[0]):
        total += vector[k] * vector[k]
    return total


@kernel
def clip_factor(norm: float, bound: float) -> float:
    """The factor of a vector of this norm; 0 where the norm is not finite."""
    return bound / max(norm, bound) if math.isfinite(norm) else 0.0


@kernel
def loaded(stored: Stored, position: int, row: Floats) -> np.float32:
    """A record as the model sees it, into `row` (K,); its squared norm."""
    if stored.bytes.shape[0]:
        return _scaled(stored.bytes[position], stored.scale, stored.shift, row)
    return _scaled(stored.numbers[position], stored.scale, stored.shift, row)


@kernel
def _scaled(values: NDArray[np.uint8] | Floats, scale: Floats, shift: Floats, row: Floats) -> np.float32:
    total = np.float32(0.0)
    if scale.shape[0] == 1:
        for k in range(row.shape[0]):
            value = np.float32(values[k]) * scale[0] + shift[0]
            row[k] = value
            total += value * value
    else:
        for k in range(row.shape[0]):
            value = np.float32(values[k]) * scale[k] + shift[k]
            row[k] = value
            total += value * value
    return total


@kernel
def fetch_block(stored: Stored, begin: int, indices: Integers) -> None:
    """Ask for the records of the next block: they lie anywhere in memory, and waiting took a tenth of a step."""
    for r in range(min(BLOCK, indices.shape[0])):
        if stored.bytes.shape[0]:
            fetch(stored.bytes, begin + indices[r])
        else:
            fetch(stored.numbers, begin + indices[r])


@inlined
def softmax(scores: Floats) -> None:
    """Replace the scores of a record by their softmax, in place."""
    largest = scores[0]
    for c in range(1, scores.shape[0]):
        largest = max(largest, scores[c])
    total = np.float32(0.0)
    for c in range(scores.shape[0]):
        scores[c] = math.exp(scores[c] - largest)
        total += scores[c]
    share = np.float32(1.0) / total
    for c in range(scores.shape[0]):
        scores[c] *= share


@kernel
def loss_gradient(smoothing: np.float32, scores: Floats, label: int, delta: Floats) -> None:
    """The gradient of a record's cross-entropy in its scores (classes,)."""
    classes = scores.shape[0]
    for c in range(classes):
        delta[c] = scores[c]
    softmax(delta)
    spread = smoothing / np.float32(classes)
    for c in range(classes):
        delta[c] -= spread
    delta[label] -= np.float32(1.0) - smoothing


@kernel
def _activate(kind: int, values: Floats) -> None:
    """Apply the activation after a layer, in place."""
    for r in range(values.shape[0]):
        if kind == RELU:
            for c in range(values.shape[1]):
                if values[r, c] <= 0.0:  # undefined numbers stay
                    values[r, c] = 0.0
        elif kind == SOFTMAX:
            softmax(values[r])


@kernel
def _activate_back(kind: int, values: Floats, deltas: Floats) -> None:
    """Turn the gradient in an activation's output into that in its input, in place."""
    for r in range(values.shape[0]):
        if kind == RELU:
            for c in range(values.shape[1]):
                if values[r, c] <= 0.0:
                    deltas[r, c] = 0.0
        elif kind == SOFTMAX:
            mean = np.float32(0.0)
            for c in range(values.shape[1]):
                mean += deltas[r, c] * values[r, c]
            for c in range(values.shape[1]):
                deltas[r, c] = values[r, c] * (deltas[r, c] - mean)


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
def _add_rows(rows: Floats, factors: Floats, out: Floats) -> None:
    """out (T, K) += factors (ROWS, T), transposed, times rows (ROWS, K)."""
    whole = out.shape[0] - out.shape[0] % WIDE
    for t in range(0, whole, WIDE):
        row_sums(rows, factors, out, t)
    for t in range(whole, out.shape[0]):
        row_sums_of_one(rows, factors, out, t)


@inlined
def forward(model: Floats, network: Network, values: Floats) -> None:
    """Compute the scores of a block's records."""
    for layer in range(network.inputs.shape[0]):
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        out = block_of(values, network, layer + 1)
        _products(block_of(values, network, layer), matrix(model, first, outputs, inputs), out)
        if network.biased[layer]:
            biases = part(model, first + outputs * inputs, outputs)
            for r in range(BLOCK):
                for c in range(outputs):
                    out[r, c] += biases[c]
        _activate(network.activations[layer], out)


@composed
def backward(model: Floats, network: Network, memory: Memory) -> None:
    """Compute the gradients in each layer's output from those in the scores, for the records of a block."""
    for layer in range(network.inputs.shape[0] - 1, -1, -1):
        values, deltas = block_of(memory.values, network, layer + 1), block_of(memory.deltas, network, layer + 1)
        _activate_back(network.activations[layer], values, deltas)
        if layer == 0:
            return
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        weights = matrix(model, first, outputs, inputs)
        before = block_of(memory.deltas, network, layer)
        clear(part(memory.deltas, BLOCK * network.places[layer], BLOCK * inputs))
        whole = outputs - outputs % BLOCK
        for c in range(0, whole, BLOCK):
            turned = matrix(memory.turned, 0, BLOCK, BLOCK)
            for r in range(BLOCK):
                for t in range(BLOCK):
                    turned[t, r] = deltas[r, c + t]
            _add_rows(matrix(model, first + c * inputs, BLOCK, inputs), turned, before)
        for c in range(whole, outputs):
            for r in range(BLOCK):
                delta = deltas[r, c]
                for k in range(inputs):
                    before[r, k] += delta * weights[c, k]


@composed
def clip_records(network: Network, bound: float, memory: Memory, count: int) -> None:
    """Scale the gradient of each of a block's records; rows that hold no record, or none that is finite, become zero.

    The gradient of a layer's weights is an outer product, whose norm is the product of norms.
    """
    layers = network.inputs.shape[0]
    for r in range(BLOCK):
        factor = 1.0 if r < count else 0.0
        if factor and math.isfinite(bound):
            total = 0.0
            for layer in range(layers):
                inputs = memory.input_norms[r] if layer == 0 else squares(block_of(memory.values, network, layer)[r])
                own = squares(block_of(memory.deltas, network, layer + 1)[r])
                total += np.float64(own) * (np.float64(inputs) + (1.0 if network.biased[layer] else 0.0))
            factor = clip_factor(math.sqrt(total), bound)
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


@composed
def add_block(network: Network, memory: Memory) -> None:
    """Add the gradients of a block's records to the memory's."""
    for layer in range(network.inputs.shape[0]):
        inputs, outputs, first = network.inputs[layer], network.outputs[layer], network.first[layer]
        deltas = block_of(memory.deltas, network, layer + 1)
        weights = matrix(memory.gradient, first, outputs, inputs)
        _add_rows(block_of(memory.values, network, layer), deltas, weights)
        if network.biased[layer]:
            biases = part(memory.gradient, first + outputs * inputs, outputs)
            for c in range(outputs):
                for r in range(BLOCK):
                    biases[c] += deltas[r, c]
