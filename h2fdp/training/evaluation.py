"""Accuracy and loss of a model on records that are not trained on, in large batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.models import ParameterLayout
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.losses import CROSS_ENTROPY, Loss

_VALUES_AT_ONCE = 4_000_000  # inputs of a batch, as float32 16 MB: large enough to amortise, small enough for caches


@dataclass(frozen=True)
class Evaluation:
    """(devices,) share of records classified right, and mean loss; `whole` is over all records."""

    accuracy: np.ndarray
    loss: np.ndarray
    accuracy_whole: float
    loss_whole: float


def evaluate(module: nn.Module, model: Tensor, records: DeviceRecords, loss: Loss = CROSS_ENTROPY) -> Evaluation:
    """Evaluate parameters `model` (M,) on every record; a set without devices is one device."""
    parameters = ParameterLayout(module).views(model)
    count = len(records.y)
    step = max(1, _VALUES_AT_ONCE // max(1, records.x[0].numel()))
    right, losses = np.empty(count), np.empty(count)
    with torch.no_grad():
        for first in range(0, count, step):
            part = slice(first, first + step)
            output = functional_call(module, parameters, (records.inputs(part),))
            labels = records.y[part]
            right[part] = (output.argmax(dim=1) == labels).cpu().numpy()
            losses[part] = loss.evaluated(output, labels).cpu().numpy()
    owners = records.offsets[:-1]
    return Evaluation(
        np.add.reduceat(right, owners) / records.sizes,
        np.add.reduceat(losses, owners) / records.sizes,
        float(right.mean()),
        float(losses.mean()),
    )
