"""Upcycled-FL: after each update from the devices, one from the models that the server already has (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from h2fdp.training.server.update import ServerUpdate, Uploaded


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
        """See `ServerUpdate.apply`."""
        moved = self._inner.apply(model, uploaded)
        self._done += 1
        return moved + self._factor(self._done) * (moved - model)

    def state(self) -> dict[str, Any]:
        """See `ServerUpdate.state`."""
        return {"done": self._done, "inner": self._inner.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `ServerUpdate.load`."""
        self._done = state["done"]
        self._inner.load(state["inner"])
