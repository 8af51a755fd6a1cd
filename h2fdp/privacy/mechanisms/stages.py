"""What happens to the vectors of devices, stage by stage, so that what leaves them is private."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from h2fdp.data.records import Rows
from h2fdp.privacy.adaptive_clipping import AdaptiveClipping
from h2fdp.privacy.mechanism import ROUNDING, add_gaussian_noises, clip_rows
from h2fdp.privacy.modular_sums import ModularCode
from h2fdp.privacy.words import AggregationKind
from h2fdp.streams import Streams, generator_of

if TYPE_CHECKING:
    from torch import Tensor

Divisor = Literal["expected", "drawn"] | float


@dataclass(frozen=True, kw_only=True)
class Moment(Rows):
    """What a stage may depend on besides the vectors of some devices, over one stretch of local steps.

    Attributes:
        nodes: (s,) names of the devices; empty where they add no noise, as the levels are.
        levels: (s,) as the mechanism planned them: standard deviations where it does not say otherwise.
        first_slot, last_slot: the steps are at the slots first_slot + 1 .. last_slot; the upload is at the last one.
        kind: of the aggregation that it is for.
        step_size: eta_k.
        steps: (s,) that each device does; None where nobody asks.
        batches: (s,) by which sums of gradients are divided; None: by the records that are drawn.
        shares: (s,) weights in a sum of integers; None where vectors are sent.
        clip_norm: C of this interval, where it moves.
        votes: (s,) sums of records' votes about it, as the engine counted them.
    """

    streams: Streams
    nodes: list[str]
    levels: np.ndarray
    interval: int
    first_slot: int
    last_slot: int
    kind: AggregationKind = "local"
    step_size: float = 0.0
    steps: np.ndarray | None = None
    batches: np.ndarray | None = None
    shares: np.ndarray | None = None
    clip_norm: float | None = None
    votes: Tensor | None = None

    def keys(self, purpose: str) -> list[int]:
        """(s,) of the stream of each device's noise; none ever comes again."""
        key, at = self.streams.key, (f"noise-{purpose}", self.interval, self.last_slot)
        return [key(node, *at) for node in self.nodes]

    def drawn(self, purpose: str) -> Iterator[tuple[int, float, np.random.Generator]]:
        """Position, level and stream of each device's noise; a stream is good until the next."""
        for position, (key, level) in enumerate(zip(self.keys(purpose), self.levels.tolist(), strict=True)):
            yield position, level, generator_of(key)


@dataclass(frozen=True)
class StepNoise(Rows):
    """Noise on the sum of a batch's gradients at every step; the `GradientNoise` of training engines.

    A step's noise vector has a stream of its own: (device, "noise-step", interval, slot).

    Attributes:
        nodes: (s,) names of the devices.
        levels: (s,) standard deviations on the sums.
    """

    streams: Streams
    nodes: list[str]
    levels: np.ndarray
    interval: int
    first_slot: int

    def add(self, gradients: Tensor, slot: int, divisors: np.ndarray) -> None:
        """Add to the first n devices' gradients (n, M), in place; they are sums divided by `divisors` (n,).

        Args:
            slot: which of the stretch's slots, from 0.
        """
        at = self.first_slot + slot + 1
        keys = [self.streams.key(node, "noise-step", self.interval, at) for node in self.nodes[: len(gradients)]]
        add_gaussian_noises(gradients, self.levels[: len(gradients)] / divisors, keys)


class Stage(Protocol):
    """One thing that happens to a device's upload; a frozen value.

    Row i of every answer depends on row i of every argument alone, to the bit, whatever other rows are there: the
    devices of several subnets may be given at once.

    Attributes:
        noisy: the devices add noise.
        noisy_steps: they add it to the gradient of each step.
        hides: nothing but the updates may leave the devices: no last steps, no ends of their way.
        counts_votes: the engine counts records' votes about the clip norm.
        extra: coordinates that it appends to every update.
    """

    noisy: ClassVar[bool] = False
    noisy_steps: ClassVar[bool] = False
    hides: ClassVar[bool] = True
    counts_votes: ClassVar[bool] = False

    @property
    def extra(self) -> int:
        return 0

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor | None:
        """(s, M) added to every direction of each device's steps; None for nothing."""
        return None

    def step_noise(self, at: Moment) -> StepNoise | None:
        """Noise on every step's gradient; None for none."""
        return None

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        """What becomes of the updates (s, M), in place where they keep their shape.

        Args:
            received: (M,) what the devices were sent, or (s, M) what each was; their own models are received - updates.
        """
        return updates


@dataclass(frozen=True)
class Pipeline:
    """The stages of devices' uploads. Devices know it themselves: an order without noise is not obeyed.

    Attributes:
        divisor: of the sum of a batch's gradients: `expected` q_i D_i, the number `drawn`, or one number for all.
    """

    stages: tuple[Stage, ...] = ()
    divisor: Divisor = "drawn"

    @property
    def noisy(self) -> bool:
        """Whether devices add noise of their own."""
        return any(stage.noisy for stage in self.stages)

    @property
    def noisy_steps(self) -> bool:
        """Whether they add it to the gradient of each step."""
        return any(stage.noisy_steps for stage in self.stages)

    @property
    def hides(self) -> bool:
        """Whether nothing but updates leaves the devices."""
        return any(stage.hides for stage in self.stages)

    @property
    def counts_votes(self) -> bool:
        """Whether engines count records' votes."""
        return any(stage.counts_votes for stage in self.stages)

    @property
    def extra(self) -> int:
        """Coordinates that models and updates have beside the M parameters."""
        return sum(stage.extra for stage in self.stages)

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor | None:
        """(s, M) added to every direction of each device's steps; None for nothing."""
        terms = (stage.linear_terms(model, at) for stage in self.stages)
        return next((each for each in terms if each is not None), None)

    def step_noise(self, at: Moment) -> StepNoise | None:
        """Noise on every step's gradient; None for none."""
        noises = (stage.step_noise(at) for stage in self.stages)
        return next((each for each in noises if each is not None), None)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        """(s, M + extra) what devices upload of their updates (s, M), which may be overwritten; see `Stage.encode`."""
        for stage in self.stages:
            updates = stage.encode(updates, received, at)
        return updates

    def coded(self, code: ModularCode | None) -> Pipeline:
        """The same for a sum of integers: noise is part of the code. None: as it is."""
        if code is None:
            return self
        assert any(isinstance(stage, GaussianNoise) for stage in self.stages), "no device here adds its share to a sum"
        coded = (ModularShares(code) if isinstance(stage, GaussianNoise) else stage for stage in self.stages)
        return replace(self, stages=tuple(coded))


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
        if self.initial is not None and at.clip_norm is not None:
            longest *= at.clip_norm / self.initial
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
    assert at.clip_norm is not None, "an order says what devices vote about"
    return at.clip_norm


@dataclass(frozen=True)
class GaussianNoise(Stage):
    """Delta_i + n_i, (10) and (14) of H2FDP."""

    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        add_gaussian_noises(updates, at.levels, at.keys(at.kind))
        return updates


@dataclass(frozen=True)
class ModularShares(Stage):
    """(s, d) int64, what devices upload to a sum of integers in the place of their updates (s, M)."""

    code: ModularCode
    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        assert at.shares is not None, "a sum of integers has its weights in it"
        signs = self.code.signs(at.streams, at.interval, at.last_slot)
        cells = self.code.cells(at.levels, at.shares).tolist()
        return torch.stack(
            [
                self.code.encode(updates[position], float(at.shares[position]), cells[position], signs, stream)
                for position, _, stream in at.drawn(at.kind)
            ]
        )


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
    """w_i is scaled to a norm of at most tau, noise is added, and the result goes up as an update."""

    model_norm: float
    noisy: ClassVar[bool] = True

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        models = torch.sub(received, updates, out=updates)
        clip_rows(models, self.model_norm)
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
