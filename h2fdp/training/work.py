"""Inputs and results of a stretch of local steps, besides records and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from h2fdp.data.records import Rows


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
    """

    updates: Tensor
    personal: Tensor | None = None
    last_steps: Tensor | None = None
    votes: Tensor | None = None

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

    def _parts(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        return self.updates, self.personal, self.last_steps, self.votes
