"""Upcycled-FL: after each update from the devices, one from the models that the server already has (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.fields import Expect

Factor = Annotated[float, Field(ge=0, le=100), Expect("a number from 0 to 100")]


class Upcycled:
    """Another update, then w(2m) = w(2m-1) + kappa (w(2m-1) - w(2m-2)).

    Both happen at the end of one interval: the second touches no data, sends nothing and reveals nothing.

    Args:
        factor: kappa.
    """

    def __init__(self, inner: ServerUpdate, factor: float) -> None:
        self._inner = inner
        self._factor = factor

    @property
    def variate(self) -> Tensor | None:
        """That of the update inside."""
        return self._inner.variate

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after both updates."""
        moved = self._inner.apply(model, uploaded)
        return moved + self._factor * (moved - model)

    def state(self) -> dict[str, Any]:
        """The state of the update inside."""
        return self._inner.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        self._inner.load(state)


def upcycled(update: ServerUpdate, factor: float | None) -> ServerUpdate:
    """The update, followed by a second one where a factor is stated."""
    return update if factor is None else Upcycled(update, factor)
