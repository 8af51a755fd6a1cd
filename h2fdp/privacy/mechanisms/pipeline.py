"""The pipeline of a device's upload: what a stage is, what it may depend on, and which may come after the noise.

A mean of rounded uploads is no function of the mean of noisy ones. So where a stage after the noise keeps no sums,
each device has the account of its own upload, to everybody, and no credit for the noise of others (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from h2fdp.data.records import Rows
from h2fdp.privacy.modular_sums import IntegerSum
from h2fdp.privacy.places import Cohort, Segment
from h2fdp.privacy.vectors import GAUSSIAN, NoiseLaw, add_gaussian_noises
from h2fdp.streams import Streams, generator_of

if TYPE_CHECKING:
    from torch import Tensor

Divisor = Literal["expected", "drawn"] | float


@dataclass(frozen=True)
class PlannedSum:
    """A sum of an edge server as it is planned.

    Attributes:
        node: whose sum it is.
        parameters: M.
        rows, shares: (s,) of the devices that begin, and their shares in it.
        step_size, steps: of the updates.
    """

    node: str
    parameters: int
    rows: np.ndarray
    shares: np.ndarray
    step_size: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class Moment(Cohort):
    """The facts that a stage may depend on in addition to the vectors of some devices, over a stretch of local steps.

    Attributes:
        nodes: (s,) names of the devices; empty where they add no noise, as the levels are.
        down: it is a model that is broadcast.
        memory: (s, M) what the senders remember of earlier uploads; a stage writes what they remember next into it.
    """

    streams: Streams
    nodes: list[str] = field(default_factory=list)
    down: bool = False
    memory: Tensor | None = None

    def keys(self, purpose: str, law: NoiseLaw = GAUSSIAN) -> list[Any]:
        """(s,) what each device's noise is drawn from; none ever comes again."""
        key, streams, at = law.key, self.streams, (f"noise-{purpose}", self.segment.interval, self.segment.last_slot)
        if not self.facts.numbers:
            return [key(streams, node, *at, 0) for node in self.nodes]
        numbers = [self.facts.numbers[row] for row in self.rows.tolist()]
        return [key(streams, node, *at, number) for node, number in zip(self.nodes, numbers, strict=True)]

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
    segment: Segment

    def add(self, gradients: Tensor, slot: int, divisors: np.ndarray) -> None:
        """Add to the first n devices' gradients (n, M), in place; they are sums divided by `divisors` (n,).

        Args:
            slot: which of the stretch's slots, from 0.
        """
        at = self.segment.interval, self.segment.first_slot + slot + 1
        keys = [self.streams.key(node, "noise-step", *at) for node in self.nodes[: len(gradients)]]
        add_gaussian_noises(gradients, self.levels[: len(gradients)] / divisors, keys)


class Stage(Protocol):
    """One thing that happens to a device's upload; a frozen value.

    Row i of every answer depends on row i of every argument alone, to the bit, whatever other rows are there: the
    devices of several subnets may be given at once. So sums of coordinates are taken of one row after another: a sum
    along the rows of a block may differ in its last bits with the number of rows.

    Attributes:
        noisy: the devices add noise.
        noisy_steps: they add it to the gradient of each step.
        hides: nothing but the updates may leave the devices: no last steps, no ends of their way.
        has_code: what it uploads is no vector of the model's space: the node decodes the sum.
        draws: it draws private numbers of each device.
        remembers: it reads and writes `Moment.memory`, of noisy updates alone where it comes after the noise.
        keeps_sums: a weighted sum of what it makes of vectors is a function of their weighted sum, and of numbers that
            are public or independent of them. Where a stage after the noise does not, nothing hides a device but its
            own noise.
        omits: coordinates of what it is given do not arrive.
    """

    noisy: ClassVar[bool] = False
    noisy_steps: ClassVar[bool] = False
    hides: ClassVar[bool] = True
    has_code: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    keeps_sums: ClassVar[bool] = False
    omits: ClassVar[bool] = False

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor | None:
        """(s, M) added to every direction of each device's steps; None for nothing."""
        return None

    def step_noise(self, at: Moment) -> StepNoise | None:
        """Noise on every step's gradient; None for none."""
        return None

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        """The encoded updates (s, M), in place where they keep their shape.

        Args:
            received: (M,) what the devices were sent, or (s, M) what each was; their own models are received - updates.
        """
        return updates

    def message_bits(self, bits: float, size: int) -> float:
        """The bits of a message of `size` numbers that has `bits` without the stage. They depend on these alone: a
        length that hung on records would leak by energy, clock and arrival."""
        return bits

    def coded(self, planned: PlannedSum, levels: np.ndarray) -> tuple[IntegerSum, np.ndarray] | None:
        """The code of a sum, if it needs one, and the levels (s,) of noise that it makes of these."""
        return None

    def decode(self, uploads: Tensor, weights: np.ndarray, at: Moment) -> tuple[Tensor, np.ndarray]:
        """The vectors (n, M) that the node averages, and their weights (n,), of what devices uploaded (s, d)."""
        return uploads, weights


@dataclass(frozen=True)
class Pipeline:
    """The stages of devices' uploads. Devices know it themselves: an order without noise is not obeyed.

    Attributes:
        divisor: of the sum of a batch's gradients: `expected` q_i D_i, the number `drawn`, or one number for all.
        law: of the noise that they add, or nodes above them.
    """

    stages: tuple[Stage, ...] = ()
    divisor: Divisor = "drawn"
    law: NoiseLaw = GAUSSIAN

    @property
    def noisy(self) -> bool:
        """Whether devices add noise of their own."""
        return any(stage.noisy for stage in self.stages)

    @property
    def noisy_steps(self) -> bool:
        """Whether they add it to the gradient of each step."""
        return any(stage.noisy_steps for stage in self.stages)

    @property
    def draws(self) -> bool:
        """Whether devices draw numbers of their own."""
        return any(stage.noisy or stage.draws for stage in self.stages)

    @property
    def remembers(self) -> bool:
        """Whether something of an upload is kept for the next one."""
        return any(stage.remembers for stage in self.stages)

    @property
    def keeps_sums(self) -> bool:
        """Whether the sum of what devices send is a function of the sum of their noisy updates, see `Stage`, and the
        noises in it have an account together."""
        if not self.law.stable:
            return False
        noisy = [place for place, stage in enumerate(self.stages) if stage.noisy]
        return all(stage.keeps_sums for stage in self.stages[noisy[-1] + 1 :]) if noisy else True

    def message_bits(self, bits: float, size: int) -> float:
        """The bits of an upload of `size` numbers, which would have so many without stages."""
        for stage in self.stages:
            bits = stage.message_bits(bits, size)
        return bits

    @property
    def hides(self) -> bool:
        """Whether nothing but updates leaves the devices."""
        return any(stage.hides for stage in self.stages)

    def linear_terms(self, model: Tensor, at: Moment) -> Tensor | None:
        """(s, M) added to every direction of each device's steps; None for nothing."""
        terms = (stage.linear_terms(model, at) for stage in self.stages)
        return next((each for each in terms if each is not None), None)

    def step_noise(self, at: Moment) -> StepNoise | None:
        """Noise on every step's gradient; None for none."""
        noises = (stage.step_noise(at) for stage in self.stages)
        return next((each for each in noises if each is not None), None)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        """(s, M) what devices upload of their updates (s, M), which may be overwritten; see `Stage.encode`."""
        for stage in self.stages:
            updates = stage.encode(updates, received, at)
        return updates

    def decode(self, uploads: Tensor, weights: np.ndarray, at: Moment) -> tuple[Tensor, np.ndarray]:
        """The vectors that the node averages, from devices' uploads, and the weights; see `Stage.decode`."""
        for stage in reversed(self.stages):
            uploads, weights = stage.decode(uploads, weights, at)
        return uploads, weights

    @property
    def has_code(self) -> bool:
        """Whether something else than updates is added up: every sum has a code of its own."""
        return any(stage.has_code for stage in self.stages)

    def coded(self, planned: PlannedSum, levels: np.ndarray) -> tuple[IntegerSum, np.ndarray] | None:
        """The code of a sum, if any; see `Stage.coded`."""
        return next((stage.coded(planned, levels) for stage in self.stages if stage.has_code), None)


@dataclass(frozen=True)
class MessageStages:
    """The stages that messages pass on their way, after all noise that is theirs to have.

    Attributes:
        devices, edges: of what devices and edge servers send up; `models`: of models that are sent down.
        key: of the file, which asks for any of them; empty where there are none.
        words: for each of the three, as the file asks for it; empty where vectors travel as they are.
    """

    devices: Pipeline = Pipeline()
    edges: Pipeline = Pipeline()
    models: Pipeline = Pipeline()
    key: str = ""
    words: tuple[str, ...] = ("", "", "")


# A key of files -> from its value, or None, to the stages that it asks for.
MESSAGES: dict[str, Callable[[Any], MessageStages]] = {}


def messages_of(configuration: Mapping[str, Any]) -> MessageStages:
    """The stages of messages that a configuration asks for, as it is checked or as it was recorded."""
    return next((each for key, of in MESSAGES.items() if (each := of(configuration.get(key))).key), MessageStages())
