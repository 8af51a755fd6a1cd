"""Epochs: a device goes through all its records in random order, batch by batch, several times in an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2fdp.training.batches import Batches, BatchSampler


def steps_per_epoch(sizes: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """(s,) batches that an epoch takes: all of round(q_i D_i) records but the last, which holds what is left.

    >>> steps_per_epoch(np.array([100, 64]), np.array([0.32, 0.5])).tolist()
    [4, 2]
    """
    batches = np.clip(np.rint(rates * sizes), 1, sizes)
    return np.asarray(np.ceil(sizes / batches).astype(np.int64))


@dataclass(frozen=True)
class EpochSampler(BatchSampler):
    """Batches of consecutive epochs; what is not training is drawn as by `fixed` sampling.

    An order of a device's records is the ranking of uniforms from the stream of (edge server, row, epoch), so it
    is the same on any placement. Slots count from the interval's first: all of an interval are drawn at once. After
    its last epoch a device draws nothing.
    """

    epochs: int
    together: ClassVar[bool] = False

    def draw(self, interval: int, slots: Sequence[int], rows: np.ndarray, purpose: str = "batch") -> Batches:
        if purpose != "batch":
            return super().draw(interval, slots, rows, purpose)
        sizes, wanted = self.sizes[rows], self.fixed_sizes()[rows]
        steps = steps_per_epoch(sizes, self.rates[rows])
        counts = np.zeros((len(slots), len(rows)), dtype=np.int64)
        indices = np.zeros((len(slots), len(rows), int(wanted.max())), dtype=np.int64)
        for position, (row, size, batch, each) in enumerate(zip(rows, sizes, wanted, steps, strict=True)):
            ends = np.minimum(np.arange(1, each + 1) * batch, size)
            for epoch in range(self.epochs):
                slot = slice(epoch * each, (epoch + 1) * each)
                counts[slot, position] = np.diff(ends, prepend=0)
                padded = np.zeros(each * batch, dtype=np.int64)
                padded[:size] = self._order(interval, epoch, int(row), int(size))
                indices[slot, position, :batch] = padded.reshape(each, batch)
        return Batches(indices, counts)

    def _order(self, interval: int, epoch: int, row: int, size: int) -> np.ndarray:
        stream = self.streams.borrowed(f"{self.edge}/{row + 1}", "epoch", interval, epoch)
        return np.asarray(np.argsort(stream.random(size), kind="stable"))
