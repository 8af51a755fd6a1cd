"""Control variates against client drift (Scaffold, Karimireddy et al. 2020, option II)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from h2fdp.algorithms.registry import (
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    SteppingOptions,
    name_method,
)
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.training.local_steps import LocalWork


@OBJECTIVES.register
class Scaffold(ObjectiveOptions):
    """The devices' part, without options.

    w <- w - eta (g - c_i + c); after K steps c_i <- c_i - c + (sum of the updates) / (K eta).

    The new c_i is a mean of the gradients along the device's way. In a tree the updates of all segments of the interval
    count; with momentum, K is how many gradients they are worth. The device uploads the change of c_i with its update.
    """

    server: ClassVar[str | None] = "scaffold"
    memory: ClassVar[str | None] = "control variates"

    name: Literal["scaffold"] = "scaffold"

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """c - c_i."""
        assert variate is not None, "Scaffold's server sends its control variate"
        return variate - memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """c_i; of a device that did no step, as it was."""
        assert variate is not None, "Scaffold's server sends its control variate"
        changed = memory - variate + done.updates / (done.gradients[:, None].clamp(min=1) * done.step_size)
        return changed.where(done.steps[:, None] > 0, memory)


class ScaffoldServer(ServerUpdate):
    """w <- w - server_step average; c <- c + (share of the devices) average change of c_i. c begins at 0."""

    kept = ("control",)

    def __init__(self, size: int, server_step: float) -> None:
        self._step = server_step
        self.control = torch.zeros(size, dtype=torch.float32)

    @property
    def variate(self) -> Tensor | None:
        """c."""
        return self.control

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after a step along the average."""
        assert uploaded.variate is not None, "devices send how their control variates change"
        self.control = self.control + uploaded.share * uploaded.variate
        return model - self._step * uploaded.average


@SERVERS.register
class ScaffoldServerOptions(SteppingOptions):
    """The cloud's part."""

    objective: ClassVar[str | None] = "scaffold"

    name: Literal["scaffold"] = "scaffold"

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return ScaffoldServer(context.parameters, self.server_step)


name_method(
    "scaffold",
    "control variates against client drift (Karimireddy et al. 2020)",
    objective="scaffold",
    server="scaffold",
    topology="star",
)
