"""The pipeline of a device's upload: what a stage is, and what it may depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from h2fdp.data.records import Rows
from h2fdp.privacy.mechanism import add_gaussian_noises
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
        steps: (s,) that each device does; None where no stage asks.
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
        """Coordinates that models and updates have more than the M parameters."""
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
