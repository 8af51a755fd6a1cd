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


@dataclass(frozen=True)
class Pass:
    """Records that are computed at once.

    Attributes:
        x: (m, width, *shape) as the model sees them.
        y: (m, width) labels.
        shares: (m, width) 1 / |xi_i| for a drawn record, 0 for padding.
    """

    x: Tensor
    y: Tensor
    shares: Tensor


class Passes:
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
        self._width = width
        self._padded = padded
        self.counts = batches.counts
        most = max(1, -(-int(batches.counts.max(initial=0)) // width)) * width
        drawn = np.arange(most) < batches.counts[:, :, None]
        held = min(most, batches.indices.shape[2])
        first = np.where(batches.counts > 0, batches.indices[:, :, 0], 0)[:, :, None]
        positions = np.broadcast_to(first, drawn.shape).copy()  # padding repeats a drawn record, and adds no other
        np.copyto(positions[:, :, :held], batches.indices[:, :, :held], where=drawn[:, :, :held])
        positions += records.offsets[rows][:, None]
        device = records.x.device
        self._positions = torch.from_numpy(positions).to(device)
        shares = drawn / np.maximum(batches.counts, 1)[:, :, None]
        self._shares = torch.from_numpy(shares.astype(np.float32)).to(device)
        # Memory for the records of a pass, used again by the next: fresh memory costs more than the numbers in it.
        self._memory = torch.empty(len(rows) * width, *records.x.shape[1:], device=device)
        self._labels = records.y.index_select(0, self._positions.view(-1)).view(self._positions.shape)

    def first(self, slot: int, devices: int) -> Pass:
        """The first pass of the first `devices` of the stack at the slot-th slot."""
        return self._gathered(slot, slice(0, devices), 0)

    def later(self, slot: int, devices: int, at_least: int) -> Iterator[tuple[Tensor, Pass]]:
        """The other passes, and the (m,) positions in the stack of the devices that they are of.

        Args:
            at_least: devices in any pass; where fewer need one, another takes part with no share in the sum.
        """
        counts, number = self.counts[slot, :devices], 1
        while (late := np.flatnonzero(counts > number * self._width)).size:
            padded = np.concatenate([late, np.repeat(late[:1], max(0, at_least - late.size))])
            chosen = torch.from_numpy(padded).to(self._positions.device)
            found = self._gathered(slot, chosen, number)
            found.shares[late.size :] = 0.0
            yield chosen, found
            number += 1

    def _gathered(self, slot: int, chosen: slice | Tensor, number: int) -> Pass:
        last = (number + 1) * self._width
        if not self._padded:
            last = min(last, max(1, int(self.counts[slot].max())))
        columns = slice(number * self._width, last)
        positions = self._positions[slot, chosen, columns]
        x = self._records.x.index_select(0, positions.reshape(-1))
        return Pass(
            self._records.scaled(x, self._memory[: len(x)]).view(*positions.shape, *x.shape[1:]),
            self._labels[slot, chosen, columns],
            self._shares[slot, chosen, columns],
        )
