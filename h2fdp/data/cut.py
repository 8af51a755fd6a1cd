"""Counting and choosing records: the arithmetic under every partitioner, vectorised over devices.

A partition is an array `owners` of shape (records,), int64: the device that holds each record, or -1 for none. Written
so, no record can be given to two devices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Weights = NDArray[np.float64]

NO_DEVICE = -1


def proportional(total: int, weights: Weights) -> Integers:
    """Split a total into whole parts, each at least 1, the rest as near in proportion to the weights as can be.

    Equal weights give parts that differ by at most one. The total must be at least the number of weights.

    >>> proportional(10, np.array([1.0, 1.0, 1.0])), proportional(10, np.array([6.0, 1.0]))
    (array([4, 3, 3]), array([8, 2]))
    """
    spare = total - len(weights)
    assert spare >= 0, "each part needs one"
    exact = spare * weights / weights.sum()
    parts: Integers = np.floor(exact).astype(np.int64)
    missing = spare - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:missing]] += 1  # those that lost most by rounding down
    return parts + 1


def choose(owners: Integers, counts: Integers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose counts[i] of device i's records at random without replacement; shape (records,), True where chosen.

    Records of no device are not chosen. No count may exceed its device's records.
    """
    place = np.lexsort((rng.random(len(owners)), owners))
    held = owners[place]
    place, held = place[held >= 0], held[held >= 0]
    starts = np.searchsorted(held, np.arange(len(counts)))
    rank = np.arange(len(held)) - starts[held]
    chosen = np.zeros(len(owners), dtype=np.bool_)
    chosen[place[rank < counts[held]]] = True
    return chosen


def sizes_of(owners: Integers, devices: int) -> Integers:
    """Number of records of each device, shape (devices,)."""
    return np.bincount(owners[owners >= 0], minlength=devices).astype(np.int64)


def gather(owners: Integers, devices: int) -> tuple[Integers, Integers]:
    """The partition as `order` (places of the records, device after device) and `offsets`, shape (devices + 1,).

    >>> gather(np.array([1, 0, -1, 1]), devices=2)
    (array([1, 0, 3]), array([0, 1, 3]))
    """
    used = np.flatnonzero(owners >= 0)
    order = used[np.argsort(owners[used], kind="stable")]
    offsets = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(sizes_of(owners, devices), out=offsets[1:])
    return order, offsets
