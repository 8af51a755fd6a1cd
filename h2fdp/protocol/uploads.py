"""What comes up from a subnet at the end of an interval, and what its devices keep to themselves meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SubnetUpload:
    """The outcome of a subnet's interval.

    The cloud reads `update` and `variate`. The rest is what single devices hold; it travels with the plan and back, so
    that hosts keep nothing that could be lost with them, and the driver hands it on unread (see `DeviceMemories`).

    Attributes:
        update: (M,) w(t_k) - w_c with the subnet's noises.
        variate: (M,) weighted average of the changes of the devices' control variates, where they send any.
        memory: (s, M) what the devices of the plan remember after the interval, where the objective has a memory.
        ends: (s', M) w_i of the devices of the last aggregation, where the plan asked; `last_steps` likewise.
    """

    update: Tensor
    variate: Tensor | None = None
    memory: Tensor | None = None
    ends: Tensor | None = None
    last_steps: Tensor | None = None

    def cpu(self) -> SubnetUpload:
        """The same in the memory of the processor."""
        held = [getattr(self, field.name) for field in fields(self)]
        return SubnetUpload(*(None if value is None else value.cpu() for value in held))  # type: ignore[arg-type]


class DeviceMemories:
    """What devices remember from one interval to the next, by edge server and row; zero before their first.

    It grows with the devices that ever took part, and only under objectives with a memory.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[str, dict[int, Tensor]] = {}

    def of(self, edge: str, rows: np.ndarray) -> Tensor:
        """(s, M)."""
        held = self._held.get(edge, {})
        nothing = torch.zeros(self._size)
        return torch.stack([held.get(row, nothing) for row in rows.tolist()])

    def known(self, edge: str) -> dict[int, Tensor]:
        """Row -> memory (M,), of the devices that took part before."""
        return self._held.get(edge, {})

    def keep(self, edge: str, rows: np.ndarray, memory: Tensor) -> None:
        """Remember (s, M)."""
        held = self._held.setdefault(edge, {})
        for row, own in zip(rows.tolist(), memory, strict=True):
            held[row] = own.clone()  # not a view that keeps its whole block

    def state(self) -> dict[str, Any]:
        """In plain values and tensors, for a checkpoint."""
        return {
            edge: {"rows": list(held), "memory": torch.stack(list(held.values()))} for edge, held in self._held.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self._held = {}
        for edge, held in state.items():
            self.keep(edge, np.array(held["rows"]), held["memory"])
