"""The stages of devices' uploads: lengths are cut, votes counted, noise added."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy.mechanisms.pipeline import Moment, PlannedSum, Stage, StepNoise
from h2fdp.privacy.modular_sums import IntegerSum, code_for
from h2fdp.privacy.vectors import GAUSSIAN, ROUNDING, AdaptiveClipping, NoiseLaw, add_gaussian_noises, clip_rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CutToLongest(Stage):
    """Between large models an update is longer than its gradients by rounding, and noise is sized for their length.

    Attributes:
        longest: from the step size and the number of steps to the longest update that clipped gradients make.
        initial: the clip norm that this is for, where it moves.
    """

    longest: Callable[[float, int], float]
    initial: float | None = None
    hides: ClassVar[bool] = False

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        longest = self.longest(at.step_size, at.last_slot - at.first_slot)
        if self.initial is not None and at.facts.clip_norm is not None:
            longest *= at.facts.clip_norm / self.initial
        clip_rows(updates, longest, ROUNDING)
        return updates


@dataclass(frozen=True)
class ClippedUpdate(Stage):
    """The whole update of an interval, scaled to a norm of at most C.

    Attributes:
        norm: C, where it does not move.
        gamma: updates are normalised, see `clip_rows`; None cuts those that are longer.
        moving: how C moves: by votes about whole updates.
    """

    norm: float
    gamma: float | None = None
    moving: AdaptiveClipping | None = None

    @property
    def extra(self) -> int:
        return int(self.moving is not None)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        if self.moving is None:
            clip_rows(updates, self.norm, gamma=self.gamma)
            return updates
        norm = _moved_to(at)
        within = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64) <= norm
        clip_rows(updates, norm)
        vote = self.moving.vote(norm)
        return torch.cat([updates, torch.where(within, vote, -vote).to(updates)[:, None]], dim=1)


@dataclass(frozen=True)
class RecordVotes(Stage):
    """The last coordinate: votes about the clip norm of records, which go the way that gradients go.

    Attributes:
        noisy_gradients: each step's gradient has noise, and so have the votes: that of all steps together.
    """

    moving: AdaptiveClipping
    noisy_gradients: bool = False
    counts_votes: ClassVar[bool] = True
    keeps_sums: ClassVar[bool] = True

    @property
    def extra(self) -> int:
        return 1

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        vote = self.moving.vote(_moved_to(at))
        assert at.votes is not None, "engines count them"
        assert at.batches is not None, "sums are divided by public numbers"
        means = 2 * at.votes.double().cpu().numpy() / at.batches
        noise = noise_on_votes(at) / at.batches if self.noisy_gradients else np.zeros(len(means))
        if not self.noisy_gradients:
            means = means.clip(-1, 1)  # as the mean of the gradients is clipped: a batch may be larger than expected
        votes = torch.from_numpy(at.step_size * (vote * means + noise))
        return torch.cat([updates, votes.to(updates)[:, None]], dim=1)


def noise_on_votes(at: Moment) -> np.ndarray:
    """(s,) on sums of votes, in the unit of a gradient: the sum of all steps' noises, which is all that is seen."""
    assert at.steps is not None, "the noise is that of all steps"
    found = np.zeros(len(at.steps))
    for position, level, stream in at.drawn("votes"):
        found[position] = level * math.sqrt(at.steps[position]) * stream.standard_normal()
    return found


def _moved_to(at: Moment) -> float:
    assert at.facts.clip_norm is not None, "an order says what devices vote about"
    return at.facts.clip_norm


@dataclass(frozen=True)
class UpdateNoise(Stage):
    """Delta_i + n_i, (10) and (14) of H2FDP, n_i of any law."""

    law: NoiseLaw = GAUSSIAN
    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        self.law.add(updates, at.levels, at.keys(at.kind, self.law))
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
        shares, signs = whole.shares_of(at.rows), whole.code.signs(at.streams, at.interval, at.last_slot)
        cells = whole.code.cells(at.levels, shares).tolist()
        return torch.stack(
            [
                whole.code.encode(updates[position], float(shares[position]), cells[position], signs, stream)
                for position, _, stream in at.drawn(at.kind)
            ]
        )

    def decode(self, uploads: Tensor, weights: np.ndarray, at: Moment) -> tuple[Tensor, np.ndarray]:
        """The sum alone, divided by the shares that arrived."""
        whole = self._sum(at)
        signs = whole.code.signs(at.streams, at.interval, at.last_slot)
        return whole.code.decode(uploads, signs)[None], np.array([1 / float(whole.shares_of(at.rows).sum())])

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
        return StepNoise(at.streams, at.nodes, at.levels, at.interval, at.first_slot)


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
        add_gaussian_noises(models, at.levels, at.keys(at.kind))
        return torch.sub(received, models, out=updates)


@dataclass(frozen=True)
class RandomLinearTerm(Stage):
    """n_i is drawn in each interval: its direction is uniform, its length Gamma(M, 1/alpha_i). Updates stay."""

    noisy: ClassVar[bool] = True

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor:
        import torch

        found = torch.empty(len(at.levels), model.numel())
        for position, level, stream in at.drawn("objective"):
            direction = stream.standard_normal(model.numel())
            length = level * stream.gamma(model.numel()) / np.linalg.norm(direction)
            found[position] = torch.from_numpy(direction * length)
        return found.to(model.device)
