"""The local steps of a device: gradient descent on its objective, with momentum if asked; their terms and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from h2fdp.data.records import Rows
from h2fdp.training.local_objective import Gradient, LocalObjective


class GradientNoise(Protocol):
    """Noise on the sum of a batch's gradients, at every step of every device (DP-SGD); its objects are `Rows`."""

    def add(self, gradients: Tensor, slot: int, divisors: np.ndarray) -> None:
        """Add to the first n devices' gradients (n, M), in place; they are sums divided by `divisors` (n,).

        Args:
            slot: which of the stretch's slots, from 0.
        """
        ...


@dataclass(frozen=True)
class StepTerms(Rows):
    """Terms of local steps; nothing by default.

    Attributes:
        corrections: (s, M) added to each device's directions.
        noise: on every step's gradient; also where the batch is empty.
        watched: whether the last step is wanted by itself.
        clip_norm: to which gradients are clipped, record by record, instead of the engine's own norm; the votes about
            it are wanted.
    """

    corrections: Tensor | None = None
    noise: GradientNoise | None = None
    watched: bool = False
    clip_norm: float | None = None


PLAIN_TERMS = StepTerms()


@dataclass(frozen=True)
class TrainingResult(Rows):
    """What devices come out with; (s, M) float32, in memory of their own.

    Attributes:
        updates: accumulated updates Delta_i = w_start - w_i, (7)-(8); eta sum_l g_i(l) for the plain objective.
        personal: personal models, where the objective has them.
        last_steps: w_i before the last step - w_i, where they were asked for; 0 without a step.
        votes: (s,) sums of the votes about a clip norm over all steps, where it moves (see `NormVotes`).
        memory: (s, M) what they keep of what they uploaded, where a stage of the upload remembers.
    """

    updates: Tensor
    personal: Tensor | None = None
    last_steps: Tensor | None = None
    votes: Tensor | None = None
    memory: Tensor | None = None

    @classmethod
    def room(cls, starts: Tensor, personal: bool, watched: bool, votes: bool = False) -> TrainingResult:
        """Memory for the outcomes of devices that start at `starts` (s, M)."""

        def empty() -> Tensor:
            return torch.empty_like(starts, memory_format=torch.contiguous_format)

        voted = torch.zeros(len(starts), device=starts.device) if votes else None
        return cls(empty(), empty() if personal else None, empty() if watched else None, voted)

    def place(self, devices: Tensor | int, other: TrainingResult) -> None:
        """Set these devices' outcomes."""
        for own, new in zip(self._parts(), other._parts(), strict=True):
            if own is not None and new is not None:
                own[devices] = new

    def split(self, counts: Sequence[int]) -> Iterator[TrainingResult]:
        """Device after device, as many as each count says: views of the same memory."""
        sizes = list(counts)
        parts = ([None] * len(sizes) if each is None else each.split_with_sizes(sizes) for each in self._parts())
        return map(TrainingResult, *parts)

    def _parts(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        return self.updates, self.personal, self.last_steps, self.votes, self.memory


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
