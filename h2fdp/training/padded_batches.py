"""The batches of a stack of devices, cut into passes of one width, so that a stack is one block of numbers.

A pass takes up to `width` records of each device. A larger batch takes as many passes as it needs, of just the devices
that have one: no draw is ever cut, since cutting would void the privacy account. Every pass has the full width, the
same in the whole network, so that a device's arithmetic, and with it every bit, is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from h2fdp.training.batches import Batches
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.placing import placed


@dataclass(frozen=True)
class PaddedBatch:
    """Records that are computed at once.

    Attributes:
        x: (m, width, *shape) as the model sees them.
        y: (m, width) labels.
        shares: (m, width) 1 / |xi_i|, or 1 / (q_i D_i), for a drawn record, 0 for padding.
    """

    x: Tensor
    y: Tensor
    shares: Tensor


class PaddedBatches:
    """All batches of a stack, placed where its records are; those of a pass are gathered when it comes.

    A pass is good until the next one: they share their memory.

    Args:
        rows: (n,) rows of `records`.
        batches: of these n devices.
        width: records of a device in a pass.
        padded: every pass has the full width; without, where a device is alone by rule, just its own records.
    """

    def __init__(
        self, records: DeviceRecords, rows: np.ndarray, batches: Batches, width: int, padded: bool = True
    ) -> None:
        self._records = records
        self._rows = rows
        self._batches = batches
        self._width = width
        self._padded = padded
        self.counts = batches.counts
        self.divisors = batches.divisors
        self._most = batches.counts.max(axis=1, initial=0)
        # Memory for the records of a pass, used again by the next: fresh memory costs more than the numbers in it.
        self._memory = torch.empty(len(rows) * width, *records.x.shape[1:], device=records.x.device)
        self._blocks: dict[int, list[tuple[Tensor, ...]]] = {}

    def first(self, slot: int, devices: int) -> PaddedBatch:
        """The first pass of the first `devices` of the stack at the slot-th slot."""
        positions, labels, shares = self._block(0)[slot]
        if devices < len(self._rows):
            positions, labels, shares = positions[:devices], labels[:devices], shares[:devices]
        if not self._padded:
            used = min(self._width, max(1, int(self._most[slot])))
            positions, labels, shares = positions[:, :used], labels[:, :used], shares[:, :used]
        return self._gathered(positions, labels, shares)

    def later(self, slot: int, devices: int, at_least: int) -> Iterator[tuple[Tensor, PaddedBatch]]:
        """The other passes, and the (m,) positions in the stack of the devices that they are of.

        Args:
            at_least: devices in any pass; where fewer need one, another takes part with no share in the sum.
        """
        number = 1
        while self._most[slot] > number * self._width:
            late = np.flatnonzero(self.counts[slot, :devices] > number * self._width)
            if not late.size:
                return
            padded = np.concatenate([late, np.repeat(late[:1], max(0, at_least - late.size))])
            chosen = placed(padded, self._records.x.device)
            found = self._gathered(*(part.index_select(0, chosen) for part in self._block(number)[slot]))
            found.shares[late.size :] = 0.0
            yield chosen, found
            number += 1

    def _block(self, number: int) -> list[tuple[Tensor, ...]]:
        """The number-th passes of all slots: (n, width) positions in the block of records, labels and shares."""
        if number not in self._blocks:
            columns = np.arange(number * self._width, (number + 1) * self._width)
            indices, counts = self._batches.indices, self.counts
            drawn = columns < counts[:, :, None]
            positions = np.empty(drawn.shape, dtype=np.int64)
            held = indices[:, :, columns[0] : columns[-1] + 1]
            positions[:, :, : held.shape[2]] = held
            # Padding repeats a drawn record, and adds no other.
            first = np.where(counts > 0, indices[:, :, 0], 0)[:, :, None]
            np.copyto(positions, first, where=~drawn)
            positions += self._records.offsets[self._rows][:, None]
            shares = drawn * (1.0 / self.divisors).astype(np.float32)[:, :, None]
            device = self._records.x.device
            at = placed(positions, device)
            labels = self._records.y.index_select(0, at.view(-1)).view(at.shape)
            parts = (at, labels, placed(shares, device))
            self._blocks[number] = list(zip(*(part.unbind() for part in parts), strict=True))
        return self._blocks[number]

    def _gathered(self, positions: Tensor, labels: Tensor, shares: Tensor) -> PaddedBatch:
        x = self._records.x.index_select(0, positions.reshape(-1))
        scaled = self._records.scaled(x, self._memory[: len(x)])
        return PaddedBatch(scaled.view(*positions.shape, *x.shape[1:]), labels, shares)
