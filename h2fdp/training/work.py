"""Inputs and results of a stretch of local steps, besides records and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor


class StepNoise(Protocol):
    """Noise on the sum of a batch's gradients, at every step of every device (DP-SGD)."""

    def add(self, gradients: Tensor, slot: int, divisors: np.ndarray) -> None:
        """Add to the first n devices' gradients (n, M), in place; they are sums divided by `divisors` (n,).

        Args:
            slot: which of the stretch's slots, from 0.
        """
        ...

    def part(self, devices: np.ndarray) -> Self:
        """That of some of the devices."""
        ...

    def joined(self, parts: Sequence[Self]) -> Self:
        """That of several groups of devices, one after another, of which this is the first."""
        ...


@dataclass(frozen=True)
class StepTerms:
    """Terms of local steps; nothing by default.

    Attributes:
        corrections: (s, M) added to each device's directions.
        noise: on every step's gradient; also where the batch is empty.
        watched: whether the last step is wanted by itself.
    """

    corrections: Tensor | None = None
    noise: StepNoise | None = None
    watched: bool = False

    def part(self, devices: np.ndarray) -> StepTerms:
        """Those of some of the devices."""
        corrections = None if self.corrections is None else self.corrections[torch.from_numpy(devices)]
        return StepTerms(corrections, None if self.noise is None else self.noise.part(devices), self.watched)

    @classmethod
    def joined(cls, parts: Sequence[StepTerms]) -> StepTerms:
        """Those of several groups of devices, one after another; all have corrections or none, and so with noise."""
        first = parts[0]
        if len(parts) == 1:
            return first
        corrections = [part.corrections for part in parts if part.corrections is not None]
        noises = [part.noise for part in parts if part.noise is not None]
        assert {len(corrections), len(noises)} <= {0, len(parts)}, "of all devices or of none"
        return StepTerms(
            torch.cat(corrections) if corrections else None, noises[0].joined(noises) if noises else None, first.watched
        )


PLAIN_TERMS = StepTerms()


@dataclass(frozen=True)
class TrainingResult:
    """What devices come out with; all (s, M) float32, in memory of their own.

    Attributes:
        updates: accumulated updates Delta_i = w_start - w_i, (7)-(8); eta sum_l g_i(l) for the plain objective.
        personal: personal models, where the objective has them.
        last_steps: w_i before the last step - w_i, where they were asked for; 0 without a step.
    """

    updates: Tensor
    personal: Tensor | None = None
    last_steps: Tensor | None = None

    @classmethod
    def room(cls, starts: Tensor, personal: bool, watched: bool) -> TrainingResult:
        """Memory for the outcomes of devices that start at `starts` (s, M)."""

        def empty() -> Tensor:
            return torch.empty_like(starts, memory_format=torch.contiguous_format)

        return cls(empty(), empty() if personal else None, empty() if watched else None)

    def place(self, devices: Tensor | int, other: TrainingResult) -> None:
        """Set these devices' outcomes."""
        for own, new in zip(self._parts(), other._parts(), strict=True):
            if own is not None and new is not None:
                own[devices] = new

    def first(self, count: int) -> TrainingResult:
        """Those of the first so many devices."""
        return TrainingResult(*(None if each is None else each[:count] for each in self._parts()))  # type: ignore[arg-type]

    def split(self, counts: Sequence[int]) -> Iterator[TrainingResult]:
        """Device after device, as many as each count says."""
        parts = [[None] * len(counts) if each is None else torch.split(each, list(counts)) for each in self._parts()]
        return (TrainingResult(*each) for each in zip(*parts, strict=True))

    @classmethod
    def joined(cls, parts: Sequence[TrainingResult]) -> TrainingResult:
        """Devices of several calls, one after another."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part._parts() for part in parts), strict=True)
        return cls(*(None if each[0] is None else torch.cat(each) for each in columns))  # type: ignore[arg-type]

    def _parts(self) -> list[Tensor | None]:
        return [getattr(self, field.name) for field in fields(self)]
