"""Local steps: a method's objective, as pure functions over explicit state, and descent on it, with its terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adamw import adamw

from h2fdp.config.fields import Expect, Magnitude, NonNegative, Options
from h2fdp.config.named_options import Choices
from h2fdp.data.augmentation import Variants
from h2fdp.data.records import Rows
from h2fdp.errors import UserError

Gradient = Callable[[Tensor], Tensor]


class LocalObjective:
    """The direction of a local step. Engines call it with one model or with a stack of them.

    By itself it is the loss, with a pull towards the received model where `towards_received` says so, and has no
    memory. An objective derives from it, and replaces what is otherwise.

    Attributes:
        memory: what a device keeps of its data from one interval to the next, in words; None where it keeps nothing.
            It begins at zero, is the device's own, and outlasts releases: no account covers that but one of every step.
        personal: whether a device trains a model of its own in addition to the shared one.
        gradients: the number of a batch that a step asks for; 1, and no more, of objectives that do not state it.
    """

    memory: ClassVar[str | None] = None
    personal: ClassVar[bool] = False

    @property
    def pull(self) -> float | None:
        """The mu of a term mu (w - received) in its direction, 0 without one; None where an upload is not a weighted
        sum of the gradients along the device's way."""
        return 0.0

    @property
    def towards_received(self) -> float:
        """The mu of `direction`, where an objective adds nothing else of w."""
        return 0.0

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The descent direction of a step, in memory that the caller may overwrite; and the personal model after it.

        By default g + mu (w - received), with mu = `towards_received`.

        Args:
            model: (..., M) w_i, before the step.
            gradient: the mini-batch gradient (..., M) at a point (..., M), already clipped; zero where the batch is
                empty. It may be asked at several points, the batch stays. What it returns may be overwritten.
            received: (..., M) the model that the device was sent last.
            personal: (..., M) of objectives with a personal model; it begins at `received`.
        """
        if self.towards_received == 0.0:
            return gradient(model), None
        pull = (model - received).mul_(self.towards_received)
        return pull.add_(gradient(model)), None

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """Whether m steps of this size move an upload by at most 2 eta G gain(momentum, m) when one record changes.

        `gain` is m without momentum; see the function of that name. False rules out a guarantee, until an objective
        shows that it does.
        """
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """(s, M) added to every direction of an interval, by the devices' memories (s, M); None for nothing.

        Args:
            variate: (M,) the vector that the cloud sent with the model, if it does.
        """
        return None

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """(s, M) the memories after an interval."""
        return memory


def pull_of(objective: LocalObjective) -> float | None:
    """The objective's pull; None of a user's own that does not state it."""
    return getattr(objective, "pull", None)


def pull_alone(objective: LocalObjective) -> float | None:
    """mu where the direction is g + mu (w - received), for engines that do not call it; None where it may be another.

    A class that wrote a direction of its own, compares features or goes on from models of devices does not count.
    """
    if isinstance(objective, OwnModels):
        return None
    known = getattr(type(objective), "direction", None) is LocalObjective.direction
    return objective.towards_received if known else None


@runtime_checkable
class FeatureComparison(Protocol):
    """The term of a local objective that compares models: a loss of each record's features.

    Such an objective's `correction` is not added to directions: it is the (s, M) models that devices had before.
    """

    def feature_loss(self, features: Tensor, received: Tensor, previous: Tensor) -> Tensor:
        """(n,) losses by the features (n, F) of records under the model, the received and the previous model."""
        ...


def comparison_of(objective: LocalObjective) -> FeatureComparison | None:
    """The objective where it compares models."""
    return objective if isinstance(objective, FeatureComparison) else None


def previous_models(memories: Tensor, received: Tensor) -> Tensor:
    """(..., M) the models to compare with: a device's first interval has no earlier one than the received."""
    return memories.where(memories.any(dim=-1, keepdim=True), received)


@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """The work of devices in an interval, or so far in it.

    Attributes:
        before: (s, M) what they remembered when it began.
        updates: (s, M) the sum of all updates of the interval.
        ends: (s, M) where the devices' last steps ended.
        personal: (s, M) personal models, where there are any.
        steps: (s,) local steps that were uploaded.
        gradients: (s,) the number of gradients that each update adds up: its steps, or more with momentum (see `gain`).
        step_size: eta_k.
    """

    before: Tensor
    updates: Tensor
    ends: Tensor
    personal: Tensor | None
    steps: Tensor
    gradients: Tensor
    step_size: float


class OwnModels(LocalObjective):
    """The part of an objective whose devices go on from models of their own, which is all that they remember.

    A device's own model is made of gradients and of models that it received, and of nothing else of its data.

    Attributes:
        takes_turns: of the steps between two models that a device receives, the second, fourth, ... are steps of its
            own model, and the others of the shared one. Else there is one model, which the device trains and uploads.
        goes_on: whether the own model outlives an interval; if not, it is the one that was received.
        head: how many of the last layers alone are a device's own, and never leave it; None: the whole model.
    """

    memory: ClassVar[str | None] = "own model"
    personal: ClassVar[bool] = True
    pull: ClassVar[float | None] = None
    takes_turns: ClassVar[bool] = False

    @property
    def goes_on(self) -> bool:
        return True

    @property
    def head(self) -> int | None:
        return None

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """The own models, to go on from; engines do not add them to directions."""
        return memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """The own model; of a device that did no step, as it was."""
        assert done.personal is not None, "a device has a model of its own"
        return done.personal.where(done.steps[:, None] > 0, memory)


def once(gradient: Gradient) -> Gradient:
    """A gradient for one call: a second one in a step would have the same noise, and no row in the ledger.

    Raises:
        UserError: at a second call.
    """
    asked: list[Tensor] = []

    def first(model: Tensor) -> Tensor:
        if asked:
            text = "a step asks for several gradients, and noise on steps is for one; expected one call of `gradient`"
            raise UserError(text, key="method.objective")
        asked.append(model)
        return gradient(model)

    return first


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
        variants: of the drawn records, over which their gradients are averaged; None for records as they are.
        kept: (s, 2 M + 1) moments that devices kept, see `DescentState.kept`; None where they begin at 0.
    """

    corrections: Tensor | None = None
    noise: GradientNoise | None = None
    watched: bool = False
    variants: Variants | None = None
    kept: Tensor | None = None


PLAIN_TERMS = StepTerms()


@dataclass(frozen=True)
class TrainingResult(Rows):
    """The vectors of devices after an interval; (s, M) float32, in memory of their own.

    Attributes:
        updates: accumulated updates Delta_i = w_start - w_i, (7)-(8); eta sum_l g_i(l) for the plain objective.
        personal: personal models, where the objective has them.
        last_steps: w_i before the last step - w_i, where they were asked for; 0 without a step.
        memory: (s, ...) what they keep of what they uploaded, or of their steps; None where nothing.
    """

    updates: Tensor
    personal: Tensor | None = None
    last_steps: Tensor | None = None
    memory: Tensor | None = None

    @classmethod
    def room(cls, starts: Tensor, personal: bool, watched: bool, kept: Tensor | None = None) -> TrainingResult:
        """Memory for the outcomes of devices that start at `starts` (s, M), and keep as much as in `kept`."""

        def empty() -> Tensor:
            return torch.empty_like(starts, memory_format=torch.contiguous_format)

        memory = None if kept is None else torch.empty_like(kept)
        return cls(empty(), empty() if personal else None, empty() if watched else None, memory)

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
        return self.updates, self.personal, self.last_steps, self.memory


Falling = Annotated[float, Field(ge=0, lt=1), Expect("a number from 0 and below 1")]
OPTIMIZERS: Choices[AdamW] = Choices()


@OPTIMIZERS.register
class AdamW(Options):
    """AdamW (Loshchilov and Hutter 2019), as `torch.optim.AdamW` steps.

    Attributes:
        lr: the step size of the first interval, in place of `training.step_size`.
        beta1, beta2: the weights of what was before in the means of directions and of their squares.
        eps: added to the root of the mean of squares.
        weight_decay: a step multiplies the model by 1 - lr weight_decay.
        state: `fresh` moments begin at 0 with each received model; `kept` ones go on, on the device, over all
            intervals, which noise on steps or `protects: device` allow where anything is promised.
    """

    name: Literal["adamw"] = "adamw"
    lr: Magnitude = 1e-3
    beta1: Falling = 0.9
    beta2: Falling = 0.999
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.01
    state: Literal["fresh", "kept"] = "fresh"

    @property
    def keeps(self) -> bool:
        """Whether devices keep moments from one interval to the next."""
        return self.state == "kept"

    def step(self, models: Tensor, way: Tensor, first: Tensor, second: Tensor, step_size: float, slot: int) -> Tensor:
        """(..., M) models after the slot-th step from 0; the moments (..., M) are changed in place."""
        models = models.clone()
        adamw(
            *([models], [way], [first], [second], [], [torch.tensor(float(slot), dtype=torch.float32)]),
            foreach=False,
            amsgrad=False,
            maximize=False,
            lr=step_size,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )
        return models

    def kept_step(self, state: DescentState, way: Tensor, step_size: float) -> DescentState:
        """The state after a step of devices that took different numbers of steps before, each with its own moments."""
        assert state.velocity is not None, "moments are kept"
        assert state.squares is not None, "moments are kept"
        assert state.steps is not None, "moments are kept"
        first = state.velocity.lerp(way, 1 - self.beta1)
        second = (state.squares * self.beta2).addcmul_(way, way, value=1 - self.beta2)
        steps = state.steps + 1
        # By Python's numbers: a power of a tensor's last numbers may have other bits.
        counts = [int(each) for each in steps.flatten().tolist()]
        corrections = ([1 - beta**count for count in counts] for beta in (self.beta1, self.beta2))
        whole, root = (way.new_tensor(each).view(steps.shape) for each in corrections)
        down = (first / whole).div_((second / root).sqrt_().add_(self.eps))
        models = torch.sub(state.models * (1 - step_size * self.weight_decay), down, alpha=step_size)
        return replace(state, models=models, velocity=first, squares=second, steps=steps)


@dataclass(frozen=True)
class DescentState(Rows):
    """The state of devices between two steps.

    Attributes:
        models: (..., M) w_i.
        velocity: (..., M) of the momentum, or the first moment; None without.
        personal: (..., M) personal models; None without.
        squares: (..., M) the second moment; None without.
        steps: (..., 1) that moments are made of, where devices keep them; None elsewhere.
    """

    models: Tensor
    velocity: Tensor | None = None
    personal: Tensor | None = None
    squares: Tensor | None = None
    steps: Tensor | None = None

    @property
    def kept(self) -> Tensor | None:
        """(..., 2 M + 1) both moments and the number of steps, which devices keep; None for nothing."""
        if self.velocity is None or self.squares is None or self.steps is None:
            return None
        return torch.cat([self.velocity, self.squares, self.steps], dim=-1)


@dataclass(frozen=True)
class Descent:
    """w <- w - eta v, v <- momentum v + d, with d the objective's direction and v = 0 at each received model.

    Attributes:
        momentum: 0 for plain steps. Velocities never outlive an upload.
        optimizer: that goes along the directions in another way.
        head: coordinates at the end of a model that never leave a device, see `on`.
    """

    objective: LocalObjective
    momentum: float = 0.0
    optimizer: AdamW | None = None
    head: int = 0

    def on(self, module: nn.Module) -> Descent:
        """The descent of models of this architecture.

        >>> class LastLayer(OwnModels):
        ...     head = 1
        >>> Descent(LastLayer()).on(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).head
        8
        """
        layers = self.objective.head if isinstance(self.objective, OwnModels) else None
        if layers is None:
            return self
        held = [[each for each in layer.parameters(recurse=False) if each.requires_grad] for layer in module.modules()]
        return replace(self, head=sum(each.numel() for own in [own for own in held if own][-layers:] for each in own))

    @property
    def keeps_moments(self) -> bool:
        """Whether devices keep moments from one interval to the next."""
        return self.optimizer is not None and self.optimizer.keeps

    def gain(self, steps: int) -> float:
        """The gradients that an upload of m steps adds up, see the function of that name."""
        return gain(self.momentum, steps)

    def counts(self, step_size: float, most: int) -> np.ndarray:
        """(most + 1,) see `gradients_in_uploads`."""
        return gradients_in_uploads(self.momentum, pull_of(self.objective) or 0.0, step_size, most)

    @property
    def corrects(self) -> bool:
        """Whether the objective's `correction` is added to directions, and is no model of a device."""
        return not isinstance(self.objective, OwnModels) and comparison_of(self.objective) is None

    def begin(self, received: Tensor, corrections: Tensor | None = None, kept: Tensor | None = None) -> DescentState:
        """The state at the received models (..., M), or at the models that devices had before, `corrections`.

        Args:
            kept: (..., 2 M + 1) moments from before, see `DescentState.kept`.
        """
        if kept is not None:
            size = received.shape[-1]
            first, second, steps = kept[..., :size], kept[..., size : 2 * size], kept[..., 2 * size :]
            return DescentState(received, first, None, second, steps)
        velocity = torch.zeros_like(received) if self.momentum or self.optimizer else None
        if not isinstance(self.objective, OwnModels):
            squares = None if self.optimizer is None else torch.zeros_like(received)
            return DescentState(received, velocity, received if self.objective.personal else None, squares)
        assert corrections is not None, "the models that devices had before"
        own = previous_models(corrections, received) if self.objective.goes_on else received
        if self.objective.takes_turns:
            return DescentState(received, velocity, own)
        if self.head:
            own = torch.cat([received[..., : -self.head], own[..., -self.head :]], dim=-1)
        return DescentState(own, velocity)

    def step(
        self,
        state: DescentState,
        gradient: Gradient,
        received: Tensor,
        step_size: float,
        correction: Tensor | None,
        slot: int = 0,
    ) -> DescentState:
        """One local step, the slot-th from 0; `correction` (..., M) is added to the direction."""
        if isinstance(self.objective, OwnModels) and self.objective.takes_turns:
            return self._turn(self.objective, state, gradient, received, step_size, slot)
        way, personal = self.objective.direction(state.models, gradient, received, state.personal)
        if correction is not None:
            way = way.add_(correction)
        if self.optimizer is not None and state.steps is not None:
            return self.optimizer.kept_step(replace(state, personal=personal), way, step_size)
        if self.optimizer is not None and state.velocity is not None and state.squares is not None:
            models = self.optimizer.step(state.models, way, state.velocity, state.squares, step_size, slot)
            return replace(state, models=models, personal=personal)
        if state.velocity is not None:
            velocity = state.velocity.mul(self.momentum).add_(way)
            return DescentState(torch.sub(state.models, velocity, alpha=step_size), velocity, personal)
        return DescentState(torch.sub(state.models, way, alpha=step_size, out=way), None, personal)

    def ended(self, received: Tensor, state: DescentState, out: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(..., M) updates, received - models, and personal models where there are any."""
        updates = torch.sub(received, state.models, out=out)
        if not isinstance(self.objective, OwnModels) or self.objective.takes_turns:
            return updates, state.personal
        if self.head:
            updates[..., -self.head :] = 0.0
        return updates, state.models

    def _turn(
        self,
        objective: OwnModels,
        state: DescentState,
        gradient: Gradient,
        received: Tensor,
        step_size: float,
        slot: int,
    ) -> DescentState:
        """A step of one of the two models, so that each step has one gradient, as without a second model."""
        if slot % 2 == 0:
            return replace(state, models=torch.sub(state.models, gradient(state.models), alpha=step_size))
        if not objective.goes_on:
            return state
        assert state.personal is not None, "a device has a model of its own"
        way, _ = objective.direction(state.personal, gradient, received, None)
        return replace(state, personal=torch.sub(state.personal, way, alpha=step_size))


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
    """The weight of an upload of m steps in gradients: it moves by at most 2 eta G times this.

    A gradient at step j counts (1 - momentum^(m-j+1)) / (1 - momentum) times. The sum is convex in m, so an upload
    whose record is first drawn at step l moves by no more than (m-l+1)/m of the whole: the mixture of the account,
    made for plain steps, covers momentum too.

    >>> gain(0.0, 5), gain(0.5, 2)
    (5.0, 2.5)
    """
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
