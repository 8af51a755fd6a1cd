"""The server update of a method: the cloud's step from the average of the uploads.

Upcycled-FL: after each update from the devices, one from the models that the server already has (Algorithm 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from torch import Tensor

from h2fdp.config.fields import Expect


@dataclass(frozen=True)
class Uploaded:
    """The uploads of an interval.

    Attributes:
        average: (M,) weighted average of the subnets' uploads w(t_k) - w_c, with whatever noise is on them.
        variate: (M,) that of the changes of the devices' control variates, where devices send any.
        share: of all devices of the network, those of which anything arrived.
        updates, began: name of a child of the cloud -> (M,) what arrived of it, and the model that it is an update of.
            Empty where the cloud learns, or releases, the average alone.
        weights: (n,) of `updates` in the average, in their order; empty where these are.
        children: names of all children of the cloud.
    """

    average: Tensor
    variate: Tensor | None
    share: float
    updates: Mapping[str, Tensor] = field(default_factory=dict)
    began: Mapping[str, Tensor] = field(default_factory=dict)
    weights: np.ndarray = field(default_factory=lambda: np.empty(0))
    children: tuple[str, ...] = ()


class ServerUpdate(ABC):
    """Moves the global model. It sees what the cloud received and nothing else, so it costs no privacy.

    Attributes:
        kept: names of the attributes that outlive an interval.
    """

    kept: tuple[str, ...] = ()

    @property
    def variate(self) -> Tensor | None:
        """(M,) the vector that is sent down with the model; None for none."""
        return None

    @abstractmethod
    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the next global model, after w(t_k) `model`."""

    def state(self) -> dict[str, Any]:
        """The state that outlives an interval, in plain values and tensors, for a checkpoint."""
        return {name: getattr(self, name) for name in self.kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        for name in self.kept:
            setattr(self, name, state[name])


Factor = Annotated[float, Field(ge=0, le=100), Expect("a number from 0 to 100")]


class AroundUpdate(ServerUpdate):
    """A server update around another one, which has all the state."""

    def __init__(self, inner: ServerUpdate) -> None:
        self._inner = inner

    @property
    def variate(self) -> Tensor | None:
        return self._inner.variate

    def state(self) -> dict[str, Any]:
        return self._inner.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._inner.load(state)


class Upcycled(AroundUpdate):
    """An upcycled update: the one inside, then w(2m) = w(2m-1) + kappa (w(2m-1) - w(2m-2)).

    Both happen at the end of one interval: the second touches no data, sends nothing and reveals nothing.

    Args:
        factor: kappa.
    """

    def __init__(self, inner: ServerUpdate, factor: float) -> None:
        super().__init__(inner)
        self._factor = factor

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after both updates."""
        moved = self._inner.apply(model, uploaded)
        return moved + self._factor * (moved - model)


def models_of_children(update: ServerUpdate) -> Mapping[str, Tensor]:
    """(M,) by the name of a child of the cloud: what it is sent, where that is not the global model."""
    return getattr(update, "of_children", {})
