"""Upcycled-FL: after each update from the devices, one from the models that the server already has (Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator
from torch import Tensor

from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config import Section
from h2fdp.config.fields import Expect, Magnitude

Factor = Annotated[float, Field(ge=0, le=100), Expect("a number from 0 to 100")]


class Upcycled:
    """Another update, then w(2m) = w(2m-1) + kappa_m (w(2m-1) - w(2m-2)).

    Both happen at the end of one interval: the second touches no data, sends nothing and reveals nothing.

    Args:
        factor: kappa_m, by m from 1.
    """

    def __init__(self, inner: ServerUpdate, factor: Callable[[int], float]) -> None:
        self._inner = inner
        self._factor = factor
        self._done = 0

    @property
    def variate(self) -> Tensor | None:
        """That of the update inside."""
        return self._inner.variate

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after both updates."""
        moved = self._inner.apply(model, uploaded)
        self._done += 1
        return moved + self._factor(self._done) * (moved - model)

    def state(self) -> dict[str, Any]:
        """How often it was applied, and the state of the update inside."""
        return {"done": self._done, "inner": self._inner.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        self._done = state["done"]
        self._inner.load(state["inner"])


class UpcycleSection(Section):
    """How far an upcycled update extrapolates: a constant factor, or kappa_m = mu / (mu + growth sqrt(m)).

    The second falls as 1/sqrt(m), as Corollary 5.8 of Upcycled-FL asks.

    Attributes:
        factor: the constant one; or else state `mu` and `growth`.
        mu: of the falling one.
        growth: of the falling one: how fast it falls.
    """

    factor: Factor | None = None
    mu: Magnitude | None = None
    growth: Magnitude | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> UpcycleSection:
        if (self.factor is None) == (self.mu is None and self.growth is None):
            raise ValueError("expected either factor, or mu and growth")
        if (self.mu is None) != (self.growth is None):
            raise ValueError("expected mu and growth together")
        return self

    def kappa(self, m: int) -> float:
        """kappa_m, m from 1.

        >>> UpcycleSection(factor=0.9).kappa(3), UpcycleSection(mu=1.0, growth=0.5).kappa(4)
        (0.9, 0.5)
        """
        if self.factor is not None:
            return self.factor
        assert self.mu is not None
        assert self.growth is not None
        return self.mu / (self.mu + self.growth * math.sqrt(m))


def upcycled(update: ServerUpdate, section: UpcycleSection | None) -> ServerUpdate:
    """The update, followed by a second one where a section asks for that."""
    return update if section is None else Upcycled(update, section.kappa)
