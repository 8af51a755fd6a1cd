"""Stochastic gradient descent on a local objective, with momentum if asked, as a pure step over explicit state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from h2fdp.data.records import Rows
from h2fdp.training.local_objective import Gradient, LocalObjective


@dataclass(frozen=True)
class DescentState(Rows):
    """Where devices stand between two steps.

    Attributes:
        models: (..., M) w_i.
        velocity: (..., M) of the momentum; None without.
        personal: (..., M) personal models; None without.
    """

    models: Tensor
    velocity: Tensor | None = None
    personal: Tensor | None = None


@dataclass(frozen=True)
class Descent:
    """w <- w - eta v, v <- momentum v + d, with d the objective's direction and v = 0 at each received model.

    Attributes:
        momentum: 0 for plain steps. Velocities never outlive an upload.
    """

    objective: LocalObjective
    momentum: float = 0.0

    def begin(self, received: Tensor) -> DescentState:
        """The state at the received models (..., M)."""
        velocity = torch.zeros_like(received) if self.momentum else None
        return DescentState(received, velocity, received if self.objective.personal else None)

    def step(
        self, state: DescentState, gradient: Gradient, received: Tensor, step_size: float, correction: Tensor | None
    ) -> DescentState:
        """One local step; `correction` (..., M) is added to the direction."""
        way, personal = self.objective.direction(state.models, gradient, received, state.personal)
        if correction is not None:
            way = way.add_(correction)
        if state.velocity is not None:
            velocity = state.velocity.mul(self.momentum).add_(way)
            return DescentState(torch.sub(state.models, velocity, alpha=step_size), velocity, personal)
        return DescentState(torch.sub(state.models, way, alpha=step_size, out=way), None, personal)


@lru_cache(maxsize=64)
def gradients_in_uploads(momentum: float, pull: float, step_size: float, most: int) -> np.ndarray:
    """(most + 1,) ||a||_1 for 0, 1, ... local steps: how many gradients an upload of them adds up.

    An upload is eta times a weighted sum of the gradients along the device's way, and a is the vector of these weights
    (FedNova, Wang et al. 2020, Sec. 3.1). With v <- momentum v + g + pull (w - received), w <- w - eta v, a gradient
    weighs by how many steps ago it was taken: 1 plain, (1 - momentum^n) / (1 - momentum) n steps ago with momentum,
    (1 - eta pull)^(n - 1) with a pull.

    Args:
        pull: mu of a term mu (w - received) in every step's direction.

    >>> gradients_in_uploads(0.0, 0.0, 0.1, 3).tolist(), gradients_in_uploads(0.5, 0.0, 0.1, 2).tolist()
    ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.5])
    >>> gradients_in_uploads(0.0, 5.0, 0.1, 3).tolist()
    [0.0, 1.0, 1.5, 1.75]
    """
    weights = np.zeros(most + 1)
    weight = velocity = 0.0
    for steps in range(1, most + 1):
        velocity = momentum * velocity - step_size * pull * weight + (steps == 1)
        weight += velocity
        weights[steps] = abs(weight)
    counts = weights.cumsum()
    counts.flags.writeable = False
    return counts


def gain(momentum: float, steps: int) -> float:
    """How many gradients an upload of m steps is worth: it moves by at most 2 eta G times this.

    A gradient at step j counts (1 - momentum^(m-j+1)) / (1 - momentum) times. The sum is convex in m, so an upload
    whose record is first drawn at step l moves by no more than (m-l+1)/m of the whole: the mixture of the account,
    made for plain steps, covers momentum too.

    >>> gain(0.0, 5), gain(0.5, 2)
    (5.0, 2.5)
    """
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
