"""The stages of devices' uploads: lengths are cut, noise added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.mechanisms.pipeline import Moment, PlannedSum, Stage, StepNoise
from h2fdp.privacy.modular_sums import IntegerSum, code_for
from h2fdp.privacy.vectors import GAUSSIAN, ROUNDING, NoiseLaw, add_gaussian_noises, clip_rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CutToLongest(Stage):
    """Between large models an update is longer than its gradients by rounding, and noise is sized for their length.

    Attributes:
        longest: from the step size and the number of steps to the longest update that clipped gradients make.
    """

    longest: Callable[[float, int], float]
    hides: ClassVar[bool] = False

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        clip_rows(updates, self.longest(at.segment.step_size, len(at.segment.slots)), ROUNDING)
        return updates


@dataclass(frozen=True)
class ClippedUpdate(Stage):
    """The whole update of an interval, scaled to a norm of at most C.

    Attributes:
        longest: C, see `CutToLongest`.
        gamma: updates are normalised, see `clip_rows`; None cuts those that are longer.
    """

    longest: Callable[[float, int], float]
    gamma: float | None = None

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        clip_rows(updates, self.longest(at.segment.step_size, len(at.segment.slots)), gamma=self.gamma)
        return updates


@dataclass(frozen=True)
class UpdateNoise(Stage):
    """Delta_i + n_i, (10) and (14) of H2FDP, n_i of any law."""

    law: NoiseLaw = GAUSSIAN
    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        self.law.add(updates, at.levels, at.keys(at.segment.kind, self.law))
        return updates


_WHOLE = 1e-9  # of a grid cell: a noise of so many whole cells stays what it is


@dataclass(frozen=True)
class ModularShares(Stage):
    """(s, d) int64, residues modulo 2^b with a share of the noise, in the place of updates (s, M).

    Attributes:
        bits: b.
        longest: see `CutToLongest`.
    """

    bits: int
    longest: Callable[[float, int], float]
    noisy: ClassVar[bool] = True
    has_code: ClassVar[bool] = True

    def coded(self, planned: PlannedSum, levels: np.ndarray) -> tuple[IntegerSum, np.ndarray]:
        """A grid for these updates and this noise, and the noise in whole cells of it.

        Raises:
            UserError: too few bits for this noise.
        """
        node, shares, longest = planned.node, planned.shares, self.longest(planned.step_size, planned.steps)
        code = code_for(self.bits, planned.parameters, node, longest, levels * shares)
        if code is None:
            text = f"{self.bits} bits are too few for the noise and the updates of {node}"
            raise UserError(f"{text}; expected more", key="method.privacy.secure_sum.rounding")
        whole = np.ceil(levels * shares / code.spacing - _WHOLE) * code.spacing / shares
        return IntegerSum(code, planned.rows, shares), whole

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        whole = self._sum(at)
        shares, signs = whole.shares_of(at.rows), self._signs(at)
        cells = whole.code.cells(at.levels, shares).tolist()
        return torch.stack(
            [
                whole.code.encode(updates[position], float(shares[position]), cells[position], signs, stream)
                for position, _, stream in at.drawn(at.segment.kind)
            ]
        )

    def decode(self, uploads: Tensor, weights: np.ndarray, at: Moment) -> tuple[Tensor, np.ndarray]:
        """The sum alone, divided by the shares that arrived."""
        whole = self._sum(at)
        return whole.code.decode(uploads, self._signs(at))[None], np.array([1 / float(whole.shares_of(at.rows).sum())])

    def _signs(self, at: Moment) -> np.ndarray:
        return self._sum(at).code.signs(at.streams, at.segment.interval, at.segment.last_slot)

    def _sum(self, at: Moment) -> IntegerSum:
        assert at.facts.code is not None, "an order says how vectors become integers"
        return at.facts.code


@dataclass(frozen=True)
class NoisySteps(Stage):
    """Noise at every step, empty batches included. What comes of the steps may leave as it is."""

    noisy: ClassVar[bool] = True
    noisy_steps: ClassVar[bool] = True
    hides: ClassVar[bool] = False

    def step_noise(self, at: Moment) -> StepNoise:
        return StepNoise(at.streams, at.nodes, at.levels, at.segment)


@dataclass(frozen=True)
class NoisyModel(Stage):
    """w_i is scaled to a norm of at most tau, noise is added, and the result goes up as an update.

    Attributes:
        norm: tau.
        gamma: of models that are normalised, see `clip_rows`.
    """

    norm: float
    gamma: float | None
    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        models = torch.sub(received, updates, out=updates)
        clip_rows(models, self.norm, gamma=self.gamma)
        add_gaussian_noises(models, at.levels, at.keys(at.segment.kind))
        return torch.sub(received, models, out=updates)


@dataclass(frozen=True)
class RandomLinearTerm(Stage):
    """n_i is drawn in each interval: its direction is uniform, its length Gamma(M, 1/alpha_i). Updates stay."""

    noisy: ClassVar[bool] = True

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor:
        import torch

        found = torch.empty(len(at.levels), model.numel(), dtype=torch.float32)
        for position, level, stream in at.drawn("objective"):
            direction = stream.standard_normal(model.numel())
            length = level * stream.gamma(model.numel()) / np.linalg.norm(direction)
            found[position] = torch.from_numpy(direction * length)
        return found.to(model.device)
