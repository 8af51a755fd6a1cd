"""What the kernels take: arrays and numbers, by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Network(NamedTuple):
    """A chain of L linear layers; the weights (outputs, inputs) of each lie in a model before its biases.

    Attributes:
        inputs, outputs: (L,) widths.
        biased: (L,) whether a layer has biases.
        activations: (L,) what follows each.
        first: (L,) where a layer's weights begin in the model.
        places: (L + 1,) where the inputs of each layer, and the scores, begin in the memory of a block.
    """

    inputs: Integers
    outputs: Integers
    biased: NDArray[np.bool_]
    activations: Integers
    first: Integers
    places: Integers


class Rules(NamedTuple):
    """What a step follows.

    Attributes:
        loss, loss_value: which loss, and its smoothing or margin.
        record_norm, batch_norm: bounds of a record's and of a batch's gradient; infinite for none.
        step_size, momentum: of the descent.
        pull: mu of mu (w - received) in the direction.
        inner_steps, inner_step_size, penalty: of a personal model at the Moreau envelope; 0 steps for none.
        contrast, temperature: of a comparison of features with two other models; 0 for none.
    """

    loss: int
    loss_value: np.float32
    record_norm: float
    batch_norm: float
    step_size: np.float32
    momentum: np.float32
    pull: np.float32
    inner_steps: int
    inner_step_size: np.float32
    penalty: np.float32
    contrast: np.float32
    temperature: np.float32


class Held(NamedTuple):
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
    """What devices come in and go out with, (s, M) each, or (0, M) where there is none.

    Attributes:
        received: the models that they were sent.
        models: where they stand; changed.
        velocities: of the momentum; changed.
        personal: personal models; changed.
        last: how the last step moved; written at that step.
        corrections: added to each direction.
        previous: models whose features are compared with.
        noise: added to each gradient.
    """

    received: Floats
    models: Floats
    velocities: Floats
    personal: Floats
    last: Floats
    corrections: Floats
    previous: Floats
    noise: Floats


class Memory(NamedTuple):
    """Of one call, used for block after block.

    Attributes:
        values: inputs of each layer and scores of a block.
        deltas: gradients in them.
        received, previous: as `values`, of the models to compare with; empty where there are none.
        input_norms: squared norms of the records.
        gradient: (M,).
        turned: some scores' gradients of a block, transposed.
    """

    values: Floats
    deltas: Floats
    received: Floats
    previous: Floats
    input_norms: Floats
    gradient: Floats
    turned: Floats
