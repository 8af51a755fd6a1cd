"""What single devices hold beside the model: during an interval, and from one interval to the next.

Only runs without a guarantee have any of it: what a device remembers is refused under one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.protocol.messages import Arrivals, DeviceWork, Plan, Upload
from h2fdp.training.descent import TrainingResult
from h2fdp.training.local_objective import LocalObjective


@dataclass(frozen=True)
class _Work:
    """What an objective's memory follows from: `LocalWork`."""

    updates: Tensor
    ends: Tensor
    personal: Tensor | None
    steps: Tensor
    gradients: Tensor
    step_size: float


@dataclass
class WorkAccumulator:
    """What the devices of one subnet did so far in an interval, in the rows of its plan.

    Attributes:
        memory: (s, M) what the devices remember; None where the objective has no memory.
        updates: (s, M) sums of each device's updates, where they remember.
        steps: (s,) local steps that were uploaded.
        gradients: (s,) the number of gradients that these steps add up.
        gain: maps the local steps of a stretch to that number.
        local_models: (s, M) where each device ended last, where they remember.
    """

    objective: LocalObjective
    gain: Callable[[int], float]
    plan: Plan
    variate: Tensor | None
    memory: Tensor | None
    updates: Tensor | None
    personal: Tensor | None
    steps: np.ndarray
    gradients: np.ndarray
    ends: Tensor | None = field(default=None)
    last_steps: Tensor | None = field(default=None)
    local_models: Tensor | None = field(default=None)

    @classmethod
    def begun(
        cls,
        objective: LocalObjective,
        gain: Callable[[int], float],
        plan: Plan,
        model: Tensor,
        variate: Tensor | None,
    ) -> WorkAccumulator:
        """An empty one, at the model (M,) that was sent."""
        memory = None if plan.memory is None else plan.memory.to(model.device)
        if plan.work is not None:  # of earlier stretches of the interval
            done = plan.work
            there = None if done.personal is None else done.personal.to(model.device).clone()
            own = done.updates.to(model.device).clone(), there, done.steps.copy(), done.gradients.copy()
            work = cls(objective, gain, plan, variate, memory, *own)
            work.local_models = done.local_models.to(model.device).clone()
            return work
        updates = None if memory is None else torch.zeros_like(memory)
        personal = None if memory is None or not objective.personal else torch.zeros_like(memory)
        nothing = np.zeros(len(plan.rows), dtype=np.int64), np.zeros(len(plan.rows))
        work = cls(objective, gain, plan, variate, memory, updates, personal, *nothing)
        work.local_models = None if memory is None else torch.zeros_like(memory)
        return work

    def corrections(self, rows: np.ndarray) -> Tensor | None:
        """(s, M) for the devices of these rows; None where nothing is corrected."""
        if self.memory is None:
            return None
        return self.objective.correction(self.memory[torch.from_numpy(self._places(rows))], self.variate)

    def note(self, part: Arrivals, model: Tensor, trained: TrainingResult) -> None:
        """One aggregation, of devices that were sent `model` (M,)."""
        if self.plan.watched:
            self.ends, self.last_steps = model - trained.updates, trained.last_steps
        if self.updates is None:
            return
        places = torch.from_numpy(self._places(part.rows))
        self.updates[places] += trained.updates
        assert self.local_models is not None, "kept where updates are"
        self.local_models[places] = model - trained.updates
        if self.personal is not None:
            assert trained.personal is not None, "the objective trains personal models"
            self.personal[places] = trained.personal
        self.steps[places.numpy()] += part.steps
        self.gradients[places.numpy()] += [self.gain(steps) for steps in part.steps.tolist()]

    def upload(self, update: Tensor) -> Upload:
        """The subnet's upload, beside its update (M,)."""
        memory, variate, so_far = self.memory, None, None
        if memory is not None and self.updates is not None and self.local_models is not None:
            steps = torch.from_numpy(self.steps).to(memory)
            gradients = torch.from_numpy(self.gradients).to(memory)
            work = _Work(self.updates, self.local_models, self.personal, steps, gradients, self.plan.step_size)
            remembered = self.objective.remembered(memory, self.variate, work)
            if self.variate is not None:
                shares = torch.from_numpy(self._arriving_shares()).to(memory)
                variate = shares @ (remembered - memory)
            memory = remembered
            if self.plan.kind(len(self.plan.segments) - 1) == "local":
                so_far = DeviceWork(
                    updates=self.updates,
                    local_models=self.local_models,
                    personal=self.personal,
                    steps=self.steps,
                    gradients=self.gradients,
                )
        ends, last_steps = self.ends, self.last_steps
        return Upload(update=update, variate=variate, memory=memory, work=so_far, ends=ends, last_steps=last_steps)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Where these rows stand in the plan."""
        return np.searchsorted(self.plan.rows, rows)

    def _arriving_shares(self) -> np.ndarray:
        kept = self.plan.shares * (self.steps > 0)
        return np.asarray(kept / (kept.sum() or 1.0))


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
        """Continue from a `state`."""
        self._held = {}
        for edge, held in state.items():
            self.keep(edge, np.array(held["rows"]), held["memory"])
