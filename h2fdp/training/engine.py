"""The seam between the protocol and the arithmetic of many devices' local steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.gradients import is_layered
from h2fdp.training.loop import LoopEngine
from h2fdp.training.objectives import LocalObjective
from h2fdp.training.stacked import StackedEngine


class Engine(Protocol):
    """Runs the local steps of several devices."""

    def updates(
        self, starts: Tensor, records: DeviceRecords, rows: np.ndarray, batches: Batches, step_size: float
    ) -> Tensor:
        """Accumulated updates Delta_i = w_start - w_i, (7)-(8); eta sum_l g_i(l) for the plain objective.

        Args:
            starts: (s, M) the model that each device received; may be an expanded view of fewer.
            records: the group's records; `rows` are rows of it.
            rows: (s,) the devices that train.
            batches: of these s devices, for as many slots as there are steps; a device with fewer steps stops early.
            step_size: eta_k.

        Returns:
            (s, M) float32, in memory of their own.
        """
        ...


EngineBuilder = Callable[[nn.Module, Clipping | None, LocalObjective, int], Engine]

ENGINES: Mapping[str, EngineBuilder] = MappingProxyType(
    {
        "loop": lambda module, clipping, objective, width: LoopEngine(module, clipping, objective),
        "stacked": StackedEngine,
    }
)


def build_engine(
    name: str, module: nn.Module, clipping: Clipping | None, objective: LocalObjective, width: int = 32
) -> Engine:
    """The engine of this name for a model; `loop` is the reference that others must agree with.

    Args:
        width: records of a device that a batched engine computes at once, the same in the whole network.
    """
    return ENGINES[name](module, clipping, objective, width)


def chosen_engine(module: nn.Module, device: torch.device) -> str:
    """What `engine: auto` means for a model: a rule, so that equal runs have equal bits.

    >>> chosen_engine(nn.Linear(784, 10), torch.device("cpu"))
    'stacked'
    """
    convolutions = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in module.modules())
    if device.type == "cpu" and convolutions and not is_layered(module):
        return "loop"
    return "stacked"
