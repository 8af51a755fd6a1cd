"""The objective of a method: what a device minimises, as pure functions over explicit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

Gradient = Callable[[Tensor], Tensor]


class LocalObjective(Protocol):
    """Where a local step goes. Engines call it with one model or with a stack of them.

    Attributes:
        memory: what a device keeps of its data from one interval to the next, in words; None where it keeps nothing.
            It begins at zero, lies beside nothing but its device, and outlives releases: no account covers that.
        personal: whether a device trains a model of its own beside the shared one.
        pull: mu of a term mu (w - received) in its direction, 0 without one; None where an upload is not a weighted sum
            of the gradients along the device's way.
    """

    @property
    def memory(self) -> str | None: ...

    @property
    def personal(self) -> bool: ...

    @property
    def pull(self) -> float | None: ...

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What a step follows downhill, in memory that the caller may overwrite; and the personal model after it.

        Args:
            model: (..., M) w_i, before the step.
            gradient: the mini-batch gradient (..., M) at a point (..., M), already clipped; zero where the batch is
                empty. It may be asked at several points, the batch stays. What it returns may be overwritten.
            received: (..., M) the model that the device was sent last.
            personal: (..., M) of objectives with a personal model; it begins at `received`.
        """
        ...

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """Whether m steps of this size move an upload by at most 2 eta G gain(momentum, m) when one record changes.

        `gain` is m without momentum; see `descent.gain`.
        """
        ...

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """(s, M) added to every direction of an interval, by the devices' memories (s, M); None for nothing.

        Args:
            variate: (M,) what the cloud sent beside the model, if it does.
        """
        ...

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """(s, M) the memories after an interval."""
        ...


def pull_of(objective: LocalObjective) -> float | None:
    """The objective's pull; None of a user's own that does not state it."""
    return getattr(objective, "pull", None)


class PulledObjective:
    """The direction g + mu (w - received), with mu = `towards_received`, of objectives that add nothing else of w."""

    @property
    def towards_received(self) -> float:
        """0."""
        return 0.0

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradient and the pull."""
        if self.towards_received == 0.0:
            return gradient(model), None
        pull = (model - received).mul_(self.towards_received)
        return pull.add_(gradient(model)), None


def pull_alone(objective: LocalObjective) -> float | None:
    """mu where the direction is g + mu (w - received), for engines that do not call it; None where it may be another.

    A class that wrote a direction of its own, or compares features, does not count.
    """
    known = getattr(type(objective), "direction", None) is PulledObjective.direction
    return objective.towards_received if known and isinstance(objective, PulledObjective) else None


@runtime_checkable
class FeatureComparison(Protocol):
    """What a local objective adds where it compares models: a loss of each record's features.

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


class LocalWork(Protocol):
    """What devices did in an interval.

    Attributes:
        updates: (s, M) the sum of all updates of the interval.
        ends: (s, M) where the devices' last steps ended.
        personal: (s, M) personal models, where there are any.
        steps: (s,) local steps done, as a tensor.
        gradients: (s,) the number of gradients that each update adds up: its steps, or more with momentum (see `gain`).
        step_size: eta_k.
    """

    @property
    def updates(self) -> Tensor: ...
    @property
    def ends(self) -> Tensor: ...
    @property
    def personal(self) -> Tensor | None: ...
    @property
    def steps(self) -> Tensor: ...
    @property
    def gradients(self) -> Tensor: ...
    @property
    def step_size(self) -> float: ...


class StatelessObjective(PulledObjective):
    """The part of an objective without memory."""

    memory: ClassVar[str | None] = None
    personal: ClassVar[bool] = False

    @property
    def pull(self) -> float | None:
        """0."""
        return 0.0

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """False, which rules out a guarantee, until an objective shows that it does."""
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """None: there is no memory."""
        return None

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """Nothing new."""
        return memory
