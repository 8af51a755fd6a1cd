"""The records of a group of devices, as they were stored, scaled only when a batch is gathered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from h2fdp.data import DeviceData, Records


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on a device, the same memory on a CPU. Nothing waits for a GPU: it copies when its turn comes.

    >>> placed(np.array([2, 0]), torch.device("cpu"))
    tensor([2, 0])
    """
    held = torch.from_numpy(array)
    return held.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else held.to(device)


_VALUES_KEPT = 64_000_000  # of a block that is evaluated again and again, as float32 256 MB


@dataclass(frozen=True)
class DeviceRecords:
    """Records of several devices in one block.

    Attributes:
        x: (n, *shape) uint8 or float32, as stored.
        y: (n,) int64 labels.
        offsets: (devices + 1,) device r holds records offsets[r] .. offsets[r + 1].
        scale, shift: broadcastable to (*shape); a model sees x * scale + shift.
    """

    x: Tensor
    y: Tensor
    offsets: np.ndarray
    scale: Tensor
    shift: Tensor

    @property
    def sizes(self) -> np.ndarray:
        """(devices,) D_i."""
        return np.diff(self.offsets)

    def to(self, device: torch.device) -> DeviceRecords:
        """The same records on another device."""
        x, y, scale, shift = (part.to(device) for part in (self.x, self.y, self.scale, self.shift))
        return DeviceRecords(x, y, self.offsets, scale, shift)

    def gather(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """The records at block positions `indices`, scaled: ((b, *shape) float32, (b,) int64)."""
        positions = placed(indices, self.x.device)
        return self.scaled(self.x.index_select(0, positions)), self.y.index_select(0, positions)

    def inputs(self, part: slice) -> Tensor:
        """Records in the order of the block, as the model sees them; small blocks are scaled once and kept."""
        return self.scaled(self.x[part]) if self._all_scaled is None else self._all_scaled[part]

    @cached_property
    def _all_scaled(self) -> Tensor | None:
        return self.scaled(self.x) if self.x.numel() <= _VALUES_KEPT else None

    def scaled(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Stored values as the model sees them, in memory of their own or in `out`, float32 of the same shape."""
        # In place: `addcmul`, whose broadcast operands are not vectorised, took 2.5 times as long on a CPU.
        values = x.to(torch.float32, copy=True) if out is None else out.copy_(x)
        if self._one_scale is None:
            return values.mul_(self.scale).add_(self.shift)
        scale, shift = self._one_scale
        return torch.add(shift, values, alpha=scale, out=values)

    @cached_property
    def _one_scale(self) -> tuple[float, Tensor] | None:
        """Scale and shift where they are the same for all values; they then take one pass."""
        if self.scale.numel() > 1 or self.shift.numel() > 1:
            return None
        return float(self.scale), self.shift.reshape(())


def device_records(data: DeviceData, records: Records, offsets: np.ndarray | None = None) -> DeviceRecords:
    """Records as the training engines take them; without offsets they belong to nobody in particular."""
    return DeviceRecords(
        x=torch.from_numpy(_writable(records.x)),
        y=torch.from_numpy(_writable(records.y)),
        offsets=np.array([0, len(records)]) if offsets is None else offsets,
        scale=torch.from_numpy(np.array(data.scaling.scale)),
        shift=torch.from_numpy(np.array(data.scaling.shift)),
    )


def _writable(array: np.ndarray) -> np.ndarray:
    """Arrays from an object store are read-only, which torch warns of; nothing here writes to them."""
    return array if array.flags.writeable else array.copy()
