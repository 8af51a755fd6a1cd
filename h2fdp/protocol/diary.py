"""What the devices of a subnet do over an interval, added up where an objective, or the controller, asks for it.

Only runs without a guarantee have anything to add up: what a device remembers is refused under one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from h2fdp.protocol.plans import Aggregation, SubnetPlan
from h2fdp.protocol.uploads import SubnetUpload
from h2fdp.training.objectives import LocalObjective
from h2fdp.training.work import Trained


@dataclass(frozen=True)
class _Work:
    """See `LocalWork`."""

    updates: Tensor
    personal: Tensor | None
    steps: Tensor
    gradients: Tensor
    step_size: float


@dataclass
class Diary:
    """One subnet's interval, in the rows of its plan.

    Attributes:
        memory: (s, M) what the devices remember; None where the objective has no memory.
        updates: (s, M) sums of each device's updates, where they remember.
        steps: (s,) local steps that were uploaded.
        gradients: (s,) how many gradients these are worth.
        worth: from the steps of a stretch to that.
    """

    objective: LocalObjective
    worth: Callable[[int], float]
    plan: SubnetPlan
    variate: Tensor | None
    memory: Tensor | None
    updates: Tensor | None
    personal: Tensor | None
    steps: np.ndarray
    gradients: np.ndarray
    ends: Tensor | None = field(default=None)
    last_steps: Tensor | None = field(default=None)

    @classmethod
    def begun(
        cls,
        objective: LocalObjective,
        worth: Callable[[int], float],
        plan: SubnetPlan,
        model: Tensor,
        variate: Tensor | None,
    ) -> Diary:
        """An empty one, at the model (M,) that was sent."""
        memory = None if plan.memory is None else plan.memory.to(model.device)
        updates = None if memory is None else torch.zeros_like(memory)
        personal = None if memory is None or not objective.personal else torch.zeros_like(memory)
        nothing = np.zeros(len(plan.rows), dtype=np.int64), np.zeros(len(plan.rows))
        return cls(objective, worth, plan, variate, memory, updates, personal, *nothing)

    def corrections(self, rows: np.ndarray) -> Tensor | None:
        """(s, M) for the devices of these rows; None where nothing is corrected."""
        if self.memory is None:
            return None
        return self.objective.correction(self.memory[torch.from_numpy(self._places(rows))], self.variate)

    def note(self, part: Aggregation, model: Tensor, trained: Trained) -> None:
        """One aggregation, of devices that were sent `model` (M,)."""
        if self.plan.watched:
            self.ends, self.last_steps = model - trained.updates, trained.last_steps
        if self.updates is None:
            return
        places = torch.from_numpy(self._places(part.rows))
        self.updates[places] += trained.updates
        if self.personal is not None:
            assert trained.personal is not None, "the objective trains personal models"
            self.personal[places] = trained.personal
        self.steps[places.numpy()] += part.steps
        self.gradients[places.numpy()] += [self.worth(steps) for steps in part.steps.tolist()]

    def upload(self, update: Tensor) -> SubnetUpload:
        """The subnet's upload, beside its update (M,)."""
        memory, variate = self.memory, None
        if memory is not None and self.updates is not None:
            steps = torch.from_numpy(self.steps).to(memory)
            gradients = torch.from_numpy(self.gradients).to(memory)
            work = _Work(self.updates, self.personal, steps, gradients, self.plan.step_size)
            remembered = self.objective.remembered(memory, self.variate, work)
            if self.variate is not None:
                weights = torch.from_numpy(self._arriving_weights()).to(memory)
                variate = weights @ (remembered - memory)
            memory = remembered
        return SubnetUpload(update, variate, memory, self.ends, self.last_steps)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Where these rows stand in the plan."""
        return np.searchsorted(self.plan.rows, rows)

    def _arriving_weights(self) -> np.ndarray:
        kept = self.plan.weights * (self.steps > 0)
        return np.asarray(kept / (kept.sum() or 1.0))
