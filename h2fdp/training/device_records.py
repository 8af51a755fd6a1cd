"""The records of a group of devices, scaled only when a batch is gathered; measures and loss of a model on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.data.federated import DeviceData
from h2fdp.data.records import Records
from h2fdp.data.targets import CLASS, Target
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.losses import CROSS_ENTROPY, Loss


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on a device, the same memory on a CPU. Nothing waits for a GPU: it copies when its turn comes.

    >>> placed(np.array([2, 0]), torch.device("cpu"))
    tensor([2, 0])
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


_VALUES_KEPT = 64_000_000  # of a block that is evaluated again and again, as float32 256 MB


@dataclass(frozen=True)
class DeviceRecords:
    """Records of several devices in one block.

    Attributes:
        x: (n, *shape) uint8 or float32, as stored.
        y: (n, ...) labels, as losses take them.
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
        """A copy on another torch device."""
        x, y, scale, shift = (part.to(device) for part in (self.x, self.y, self.scale, self.shift))
        return DeviceRecords(x, y, self.offsets, scale, shift)

    def gather(self, indices: np.ndarray, change: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The records at block positions `indices`, scaled: ((b, *shape) float32, (b, ...)).

        Args:
            change: makes equally many variants of each stored record, one record after another.
        """
        positions = placed(indices, self.x.device)
        x, y = self.x.index_select(0, positions), self.y.index_select(0, positions)
        if change is not None:
            x = change(x)
            y = y.repeat_interleave(len(x) // len(y), dim=0)
        return self.scaled(x), y

    def inputs(self, part: slice) -> Tensor:
        """Records in the order of the block, as the model sees them; small blocks are scaled once and kept."""
        return self.scaled(self.x[part]) if self._all_scaled is None else self._all_scaled[part]

    @cached_property
    def _all_scaled(self) -> Tensor | None:
        return self.scaled(self.x) if self.x.numel() <= _VALUES_KEPT else None

    def scaled(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Stored values as the model sees them, in memory of their own or in `out`, float32 of the same shape."""
        if self._shifts_alone and x.dtype == torch.float32:
            return torch.add(x, self.shift, out=out)
        # In place: `addcmul`, whose broadcast operands are not vectorised, took 2.5 times as long on a CPU.
        values = x.to(torch.float32, copy=True) if out is None else out.copy_(x)
        if self._one_scale is None:
            return values.mul_(self.scale).add_(self.shift)
        scale, shift = self._one_scale
        return torch.add(shift, values, alpha=scale, out=values)

    @cached_property
    def _shifts_alone(self) -> bool:
        """Whether nothing is multiplied, and one pass adds."""
        return self.scale.device.type == "cpu" and bool((self.scale == 1).all())

    @cached_property
    def _one_scale(self) -> tuple[float, Tensor] | None:
        """Scale and shift where they are the same for all values; they then take one pass."""
        if self.scale.numel() > 1 or self.shift.numel() > 1:
            return None
        return float(self.scale), self.shift.reshape(())


def device_records(
    data: DeviceData, records: Records, offsets: np.ndarray | None = None, *, cut: bool = True
) -> DeviceRecords:
    """Records as the training engines take them; without offsets they belong to no device in particular.

    Args:
        cut: real values are cut, as for training, not where errors are measured.
    """
    return DeviceRecords(
        x=torch.from_numpy(_writable(records.x)),
        y=torch.from_numpy(_writable(data.target.seen(records.y, cut))),
        offsets=np.array([0, len(records)]) if offsets is None else offsets,
        scale=torch.from_numpy(np.array(data.scaling.scale)),
        shift=torch.from_numpy(np.array(data.scaling.shift)),
    )


def _writable(array: np.ndarray) -> np.ndarray:
    """Arrays from an object store are read-only, which torch warns of; nothing here writes to them."""
    return array if array.flags.writeable else array.copy()


# (b, *outputs) scores of a part of the records by parameters `model` (M,); threads side by side have one each.
Scores = Callable[[Tensor, DeviceRecords, slice], Tensor]


class ModuleScores:
    """Scores by a functional call of a module, which has the model's parameters meanwhile."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._layout = module, ParameterLayout(module)

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        scores: Tensor = functional_call(self._module, self._layout.views(model), (records.inputs(part),))
        return scores


_VALUES_AT_ONCE = 1_000_000  # of a batch's inputs or scores, as float32 4 MB: few calls, and work for eight threads


@dataclass(frozen=True)
class Evaluation:
    """Means over records of what `Target.points` gives of each, and last of the loss.

    Attributes:
        by_device: (points + 1, devices).
        whole: (points + 1,) over all records.
    """

    target: Target
    by_device: np.ndarray
    whole: np.ndarray

    @property
    def measures(self) -> dict[str, float]:
        """The measures and the loss of all records."""
        return measures_of(self.target, self.whole)


def measures_of(target: Target, means: np.ndarray) -> dict[str, float]:
    """The measures and the loss of (points + 1,) means."""
    return target.measures(means[:-1]) | {"loss": float(means[-1])}


class Evaluator:
    """Evaluates models of one architecture. Batches are the same for any number of threads, and so are the bits.

    Args:
        scores: ways to compute what the models say, one for each batch at once.
        threads: where they are called; None for the caller's.
    """

    def __init__(
        self,
        scores: Sequence[Scores],
        loss: Loss = CROSS_ENTROPY,
        threads: Executor | None = None,
        target: Target = CLASS,
    ) -> None:
        self._scores = scores
        self._loss = loss
        self._threads = threads
        self._target = target

    def _values(self, model: Tensor, records: DeviceRecords) -> int:
        """Inputs of a record, or its scores where they are more: each word of a text has one for each word there is."""
        inputs = records.x[0].numel()
        if records.y.dim() == 1:
            return inputs
        with torch.no_grad():
            return max(inputs, self._scores[0](model, records, slice(0, 1)).numel())

    def evaluate(self, model: Tensor, records: DeviceRecords) -> Evaluation:
        """Evaluate parameters `model` (M,) on every record; a set without devices is one device."""
        count = len(records.y)
        step = max(1, _VALUES_AT_ONCE // max(1, self._values(model, records)))
        points = torch.empty(self._target.numbers + 1, count, dtype=torch.float64, device=records.y.device)

        def lane(number: int) -> None:
            with torch.no_grad():
                for first in range(number * step, count, len(self._scores) * step):
                    part = slice(first, first + step)
                    output = self._scores[number](model, records, part)
                    labels = records.y[part]
                    found = *self._target.points(output, labels), self._loss.evaluated(output, labels)
                    for row, values in zip(points, found, strict=True):
                        row[part] = values

        for _ in (map if self._threads is None else self._threads.map)(lane, range(len(self._scores))):
            pass
        rows = points.cpu().numpy()  # a GPU is waited for once
        owners = records.offsets[:-1]
        by_device = np.stack([np.add.reduceat(row, owners) / records.sizes for row in rows])
        return Evaluation(self._target, by_device, np.array([row.mean() for row in rows]))
