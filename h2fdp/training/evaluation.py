"""Accuracy and loss of a model on records that are not trained on, in large batches, several at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.models import ParameterLayout
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.losses import CROSS_ENTROPY, Loss


class Scores(Protocol):
    """A forward pass. Threads that compute side by side have one each."""

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        """(b, classes) scores of a part of the records by parameters `model` (M,)."""
        ...


class ModuleScores:
    """By calling a module functionally: meanwhile the model's parameters hang in it."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._layout = module, ParameterLayout(module)

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        scores: Tensor = functional_call(self._module, self._layout.views(model), (records.inputs(part),))
        return scores


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
        scores: ways to compute what the models say, one for each batch at once.
        threads: where they are called; None for the caller's.
    """

    def __init__(self, scores: Sequence[Scores], loss: Loss = CROSS_ENTROPY, threads: Executor | None = None) -> None:
        self._scores = scores
        self._loss = loss
        self._threads = threads

    def evaluate(self, model: Tensor, records: DeviceRecords) -> Evaluation:
        """Evaluate parameters `model` (M,) on every record; a set without devices is one device."""
        count = len(records.y)
        step = max(1, _VALUES_AT_ONCE // max(1, records.x[0].numel()))
        right = torch.empty(count, dtype=torch.bool, device=records.y.device)
        errors = torch.empty(count, dtype=torch.float64, device=records.y.device)

        def lane(number: int) -> None:
            with torch.no_grad():
                for first in range(number * step, count, len(self._scores) * step):
                    part = slice(first, first + step)
                    output = self._scores[number](model, records, part)
                    labels = records.y[part]
                    right[part] = output.argmax(dim=1) == labels
                    errors[part] = self._loss.evaluated(output, labels)

        for _ in (map if self._threads is None else self._threads.map)(lane, range(len(self._scores))):
            pass
        hits, losses = (each.cpu().double().numpy() for each in (right, errors))  # a GPU is waited for once
        owners = records.offsets[:-1]
        return Evaluation(
            np.add.reduceat(hits, owners) / records.sizes,
            np.add.reduceat(losses, owners) / records.sizes,
            float(hits.mean()),
            float(losses.mean()),
        )
