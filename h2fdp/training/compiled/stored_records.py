"""Records as they are stored, into the first cache as the model sees them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from h2fdp.training.compiled.arrays import Floats, Held, Integers
from h2fdp.training.compiled.jit import kernel
from h2fdp.training.compiled.layers import BLOCK
from h2fdp.training.compiled.vectors import fetch


@kernel
def loaded(held: Held, position: int, row: Floats) -> np.float32:
    """A record as the model sees it, into `row` (K,); its squared norm."""
    if held.bytes.shape[0]:
        return _scaled(held.bytes[position], held.scale, held.shift, row)
    return _scaled(held.numbers[position], held.scale, held.shift, row)


@kernel
def fetch_block(held: Held, begin: int, indices: Integers) -> None:
    """Ask for the records of the next block: they lie anywhere in memory, and waiting took a tenth of a step."""
    for r in range(min(BLOCK, indices.shape[0])):
        if held.bytes.shape[0]:
            fetch(held.bytes, begin + indices[r])
        else:
            fetch(held.numbers, begin + indices[r])


@kernel
def _scaled(stored: NDArray[np.uint8] | Floats, scale: Floats, shift: Floats, row: Floats) -> np.float32:
    total = np.float32(0.0)
    if scale.shape[0] == 1:
        for k in range(row.shape[0]):
            value = np.float32(stored[k]) * scale[0] + shift[0]
            row[k] = value
            total += value * value
    else:
        for k in range(row.shape[0]):
            value = np.float32(stored[k]) * scale[k] + shift[k]
            row[k] = value
            total += value * value
    return total
