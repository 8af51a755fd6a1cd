"""The seam between the protocol and the arithmetic of many devices' local steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.loop import LoopEngine
from h2fdp.training.objectives import LocalObjective


class Engine(Protocol):
    """Runs the local steps of several devices that start from one model."""

    def updates(
        self, start: Tensor, records: DeviceRecords, rows: np.ndarray, batches: Batches, step_size: float
    ) -> Tensor:
        """Accumulated updates Delta_i = w_start - w_i, (7)-(8); eta sum_l g_i(l) for the plain objective.

        Args:
            start: (M,) the model received.
            records: the group's records; `rows` are rows of it.
            rows: (s,) the devices that train.
            batches: for `len(batches.counts)` steps of these s devices.
            step_size: eta_k.

        Returns:
            (s, M) float32.
        """
        ...


ENGINES: dict[str, Callable[[nn.Module, Clipping | None, LocalObjective], Engine]] = {"loop": LoopEngine}


def build_engine(name: str, module: nn.Module, clipping: Clipping | None, objective: LocalObjective) -> Engine:
    """The engine of this name for a model; `loop` is the reference that others must agree with."""
    return ENGINES[name](module, clipping, objective)
