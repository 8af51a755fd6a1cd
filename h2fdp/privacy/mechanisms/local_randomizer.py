"""What devices do, in and after their local steps, so that what leaves them is private."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from h2fdp.data.records import Rows
from h2fdp.privacy.mechanism import add_gaussian_noises
from h2fdp.privacy.modular_sums import ModularCode
from h2fdp.streams import Streams, generator_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DeviceNoise(Rows):
    """Levels and streams of the noise of some devices, over one stretch of local steps.

    Attributes:
        nodes: (s,) names of the devices; empty where they add no noise, as the levels are.
        levels: (s,) as the mechanism planned them: standard deviations where it does not say otherwise.
        first_slot, last_slot: the steps are at the slots first_slot + 1 .. last_slot; the upload is at the last one.
        clip_norm: C of this interval, where it moves; updates then end in a vote.
    """

    streams: Streams
    nodes: list[str]
    levels: np.ndarray
    interval: int
    first_slot: int
    last_slot: int
    clip_norm: float | None = None

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


class LocalRandomizer(Protocol):
    """A device's part in a mechanism. Devices know it themselves: an order without noise is not obeyed.

    Equal ones treat updates alike, so that those of several subnets may be given at once.

    Attributes:
        noisy: devices add noise of their own.
        noisy_steps: devices add it to the gradient of each step.
        by_expected_batch: the sum of a batch's gradients is divided by q_i D_i, not by the records drawn.
        divisor: the number that it is divided by at every device instead; None where there is none.
        clips_updates: whole updates are clipped, not gradients.
    """

    noisy: ClassVar[bool]
    noisy_steps: ClassVar[bool] = False
    clips_updates: ClassVar[bool] = False

    @property
    def by_expected_batch(self) -> bool:
        return False

    @property
    def divisor(self) -> float | None:
        return None

    def linear_terms(self, model: Tensor, noise: DeviceNoise) -> Tensor | None:
        """(s, M) added to every direction of each device's steps; None for nothing."""
        return None

    def step_noise(self, noise: DeviceNoise) -> StepNoise | None:
        """Noise on every step's gradient; None for none."""
        return None

    def noise_on_votes(self, noise: DeviceNoise, steps: np.ndarray) -> np.ndarray:
        """(s,) on the sums of votes over this number of steps (s,), in the unit of a gradient.

        Where `upload` adds noise it does so to all coordinates, votes included: none is needed before.
        """
        return np.zeros(len(steps))

    def upload(self, updates: Tensor, model: Tensor, noise: DeviceNoise, purpose: str) -> bool:
        """Make the devices' updates (s, M) fit to leave them, in place.

        Args:
            model: (M,) what they were sent, or (s, M) what each was; their own models are model - updates.
            noise: of these devices, which may be of several subnets.
            purpose: local or global, the aggregation that it is for.

        Returns:
            Whether anything but the updates may go with them: last steps, ends of their way.
        """
        ...

    def residues(
        self, updates: Tensor, noise: DeviceNoise, purpose: str, code: ModularCode, shares: np.ndarray
    ) -> Tensor:
        """(s, d) int64, what the devices upload to a sum of integers in the place of their updates (s, M).

        Args:
            shares: (s,) their weights in it.
        """
        raise AssertionError("no device here adds its share to a sum")


@dataclass(frozen=True)
class RawUpdate(LocalRandomizer):
    """Nothing to hide from the edge server: it is trusted, or nobody promised anything."""

    expected: bool = False
    noisy: ClassVar[bool] = False

    @property
    def by_expected_batch(self) -> bool:
        return self.expected

    def upload(self, updates: Tensor, model: Tensor, noise: DeviceNoise, purpose: str) -> bool:
        return True


@dataclass(frozen=True)
class NoisyUpdate(LocalRandomizer):
    """Delta_i + n_i, (10) and (14) of H2FDP."""

    expected: bool = False
    noisy: ClassVar[bool] = True

    @property
    def by_expected_batch(self) -> bool:
        return self.expected

    def upload(self, updates: Tensor, model: Tensor, noise: DeviceNoise, purpose: str) -> bool:
        add_gaussian_noises(updates, noise.levels, noise.keys(purpose))
        return False

    def residues(
        self, updates: Tensor, noise: DeviceNoise, purpose: str, code: ModularCode, shares: np.ndarray
    ) -> Tensor:
        import torch

        signs = code.signs(noise.streams, noise.interval, noise.last_slot)
        cells = code.cells(noise.levels, shares).tolist()
        return torch.stack(
            [
                code.encode(updates[position], float(shares[position]), cells[position], signs, stream)
                for position, _, stream in noise.drawn(purpose)
            ]
        )
