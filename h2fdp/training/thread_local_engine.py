"""An engine for several threads: a module called with other parameters holds them meanwhile, so threads share none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from h2fdp.training.batches import Batches
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.work import PLAIN_TERMS, StepTerms, TrainingResult

if TYPE_CHECKING:
    from h2fdp.training.engine import Engine


class ThreadLocalEngine:
    """An `Engine` that builds one of its own for each thread that calls it."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._held = threading.local()

    def train(
        self,
        starts: Tensor,
        records: DeviceRecords,
        rows: np.ndarray,
        batches: Batches,
        step_size: float,
        terms: StepTerms = PLAIN_TERMS,
    ) -> TrainingResult:
        if not hasattr(self._held, "engine"):
            self._held.engine = self._build()
        engine: Engine = self._held.engine
        return engine.train(starts, records, rows, batches, step_size, terms)
