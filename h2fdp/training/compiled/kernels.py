"""The compiled local steps of devices, and the scores of records: what Python calls."""

from __future__ import annotations

import math
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

from h2fdp.compiled_streams import compiled
from h2fdp.training.compiled.blocks import (
    BLOCK,
    Floats,
    Memory,
    Stored,
    add_block,
    backward,
    block_of,
    clear,
    clip_factor,
    clip_records,
    composed,
    fetch_block,
    forward,
    kernel,
    loaded,
    loss_gradient,
    squares,
)
from h2fdp.training.compiled.chains import Integers, Network
from h2fdp.training.compiled.vectors import borrowed, part

_PART = 1024  # numbers whose squares are added in float32, before the sums are added in float64


class Rules(NamedTuple):
    """The constants of a step.

    Attributes:
        smoothing: of the labels.
        record_norm, batch_norm: bounds of a record's and of a batch's gradient; infinite for none.
        step_size, momentum: of the descent.
        pull: mu of mu (w - received) in the direction.
    """

    smoothing: np.float32
    record_norm: float
    batch_norm: float
    step_size: np.float32
    momentum: np.float32
    pull: np.float32


class Drawn(NamedTuple):
    """The batches of s devices.

    Attributes:
        begins: (s,) where a device's records begin.
        indices: (slots, s, width) positions within a device.
        counts: (slots, s) how many of them are drawn.
        divisors: (slots, s) what sums are divided by.
        steps: (s,) steps of each device.
    """

    begins: Integers
    indices: Integers
    counts: Integers
    divisors: NDArray[np.float64]
    steps: Integers


class Carried(NamedTuple):
    """The vectors that devices start and end with, (s, M) each, or (0, M) where there is none.

    Attributes:
        received: the models that they were sent.
        models: where they stand; changed.
        velocities: of the momentum; changed.
        last: how the last step moved; written at that step.
        corrections: added to each direction.
        noise: (slots, M) added to the gradients of the one device of a call.
    """

    received: Floats
    models: Floats
    velocities: Floats
    last: Floats
    corrections: Floats
    noise: Floats


@composed
def _gradient(
    model: Floats,
    network: Network,
    rules: Rules,
    stored: Stored,
    begin: int,
    indices: Integers,
    divisor: float,
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
        fetch_block(stored, begin, part(indices, first + count, indices.shape[0] - first - count))
        for r in range(BLOCK):
            if r < count:
                memory.input_norms[r] = loaded(stored, begin + indices[first + r], inputs[r])
            else:
                clear(inputs[r])
        forward(model, network, memory.values)
        for r in range(BLOCK):
            if r < count:
                loss_gradient(rules.smoothing, scores[r], stored.y[begin + indices[first + r]], deltas[r])
            else:
                clear(deltas[r])
        backward(model, network, memory)
        clip_records(network, rules.record_norm, memory, count)
        add_block(network, memory)
    share = np.float32(1.0 / divisor)
    for k in range(gradient.shape[0]):
        gradient[k] *= share
    if math.isfinite(rules.batch_norm):
        total = 0.0
        for first in range(0, gradient.shape[0], _PART):
            total += np.float64(squares(part(gradient, first, min(_PART, gradient.shape[0] - first))))
        factor = np.float32(clip_factor(math.sqrt(total), rules.batch_norm))
        if factor == 0.0:
            clear(gradient)
        elif factor != 1.0:
            for k in range(gradient.shape[0]):
                gradient[k] *= factor


@kernel
def _add(vector: Floats, other: Floats) -> None:
    for k in range(vector.shape[0]):
        vector[k] += other[k]


@composed
def _step(
    network: Network,
    rules: Rules,
    stored: Stored,
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
        fetch_block(stored, begin, part(drawn.indices[slot + 1, device], 0, drawn.counts[slot + 1, device]))
    parameters = model.shape[0]
    _gradient(model, network, rules, stored, begin, indices, divisor, memory)
    if carried.noise.shape[0]:
        _add(way, carried.noise[slot])
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


def digest_of_sources(folder: Path = Path(__file__).parent) -> int:
    """63 bits of a digest of all files of this folder.

    Numba would take its machine code from disk as long as the date of one file is the same, whatever changed in the
    others; but what a compiled function closes over counts too, so those that Python calls close over this.
    """
    texts = [file.name.encode() + b"|" + file.read_bytes() for file in sorted(folder.glob("*.py"))]
    return int.from_bytes(blake2b(b"||".join(texts), digest_size=8).digest(), "little") >> 1


def _ways_in(sources: int) -> tuple[Any, Any]:
    """The functions that Python calls; the other kernels are compiled into them."""

    def train(
        network: Network,
        rules: Rules,
        stored: Stored,
        drawn: Drawn,
        carried: Carried,
        memory: Memory,
        first: int,
        stop: int,
    ) -> None:
        assert sources >= 0
        chain, records, batches = borrowed(network), borrowed(stored), borrowed(drawn)
        models, used = borrowed(carried), borrowed(memory)
        for device in range(first, stop):
            for slot in range(batches.steps[device]):
                _step(chain, rules, records, batches, models, device, slot, used)

    def score(network: Network, stored: Stored, parameters: Floats, memory: Floats, begin: int, scores: Floats) -> None:
        assert sources >= 0
        chain, records = borrowed(network), borrowed(stored)
        model, values, out = borrowed((parameters, memory, scores))
        inputs, found = block_of(values, chain, 0), block_of(values, chain, chain.inputs.shape[0])
        for first in range(0, out.shape[0], BLOCK):
            count = min(BLOCK, out.shape[0] - first)
            for r in range(BLOCK):
                if r < count:
                    loaded(records, begin + first + r, inputs[r])
                else:
                    clear(inputs[r])
            forward(model, chain, values)
            for r in range(count):
                for c in range(out.shape[1]):
                    out[first + r, c] = found[r, c]

    return compiled(train), compiled(score)


# `train`: the local steps of the devices from the first to before the last. `score`: (b, classes) scores of the b
# records from `begin` on.
train, score = _ways_in(digest_of_sources())


class _Notice(event.Listener):
    """Says once what the user waits for; machine code from disk is no compilation."""

    said = False

    def on_start(self, compilation: Any) -> None:
        if not self.said and compilation.data["dispatcher"] in (train, score):
            self.said = True
            print("note: compiling local steps for this processor, once; later runs do not wait", file=sys.stderr)

    def on_end(self, compilation: Any) -> None:
        """Nothing."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]


def compile_both() -> None:
    """`train` and `score` for the kinds of arrays that the engine gives them: from disk, or compiled now."""
    vector, matrix = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    whole, table = np.empty(1, np.int64), np.empty((1, 1), np.int64)
    network = Network(whole, whole, np.empty(1, np.bool_), whole, whole, whole)
    stored = Stored(matrix, np.empty((1, 1), np.uint8), whole, vector, vector)
    single = np.float32(0.0)
    rules = Rules(single, 0.0, 0.0, single, single, single)
    drawn = Drawn(whole, np.empty((1, 1, 1), np.int64), table, np.empty((1, 1)), whole)
    carried, memory = Carried(*(matrix,) * 6), Memory(*(vector,) * 5)
    for way_in, given in (
        (train, (network, rules, stored, drawn, carried, memory, 0, 1)),
        (score, (network, stored, vector, vector, 0, matrix)),
    ):
        way_in.compile(tuple(numba.typeof(each) for each in given))  # type: ignore[no-untyped-call]
