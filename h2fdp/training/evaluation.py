"""Accuracy and loss of a model on records that are not trained on, in large batches, several at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.models import ParameterLayout
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.losses import CROSS_ENTROPY, Loss

_VALUES_AT_ONCE = 1_000_000  # inputs of a batch, as float32 4 MB: few calls, and work for eight threads


@dataclass(frozen=True)
class Evaluation:
    """(devices,) share of records classified right, and mean loss; `whole` is over all records."""

    accuracy: np.ndarray
    loss: np.ndarray
    accuracy_whole: float
    loss_whole: float


class Evaluator:
    """Evaluates models of one architecture. Batches are the same for any number of threads, and so are the bits.

    Args:
        modules: of this architecture, one for each batch at once: while a module is called functionally, the model's
            parameters hang in it.
        threads: where they are called; None for the caller's.
    """

    def __init__(
        self, modules: Sequence[nn.Module], loss: Loss = CROSS_ENTROPY, threads: Executor | None = None
    ) -> None:
        self._layout = ParameterLayout(modules[0])
        self._modules = modules
        self._loss = loss
        self._threads = threads

    def evaluate(self, model: Tensor, records: DeviceRecords) -> Evaluation:
        """Evaluate parameters `model` (M,) on every record; a set without devices is one device."""
        parameters = self._layout.views(model)
        count = len(records.y)
        step = max(1, _VALUES_AT_ONCE // max(1, records.x[0].numel()))
        right, losses = np.empty(count), np.empty(count)

        def lane(number: int) -> None:
            module = self._modules[number]
            with torch.no_grad():
                for first in range(number * step, count, len(self._modules) * step):
                    part = slice(first, first + step)
                    output = functional_call(module, parameters, (records.inputs(part),))
                    labels = records.y[part]
                    right[part] = (output.argmax(dim=1) == labels).cpu().numpy()
                    losses[part] = self._loss.evaluated(output, labels).cpu().numpy()

        for _ in (map if self._threads is None else self._threads.map)(lane, range(len(self._modules))):
            pass
        owners = records.offsets[:-1]
        return Evaluation(
            np.add.reduceat(right, owners) / records.sizes,
            np.add.reduceat(losses, owners) / records.sizes,
            float(right.mean()),
            float(losses.mean()),
        )


def evaluate(module: nn.Module, model: Tensor, records: DeviceRecords, loss: Loss = CROSS_ENTROPY) -> Evaluation:
    """The same in the caller's thread."""
    return Evaluator([module], loss).evaluate(model, records)
