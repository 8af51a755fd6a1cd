"""Dynamic regularisation (FedDyn, Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from h2fdp.algorithms.registry import (
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    name_method,
)
from h2fdp.algorithms.server_update import ServerUpdate, StatefulUpdate, Uploaded
from h2fdp.config.fields import Magnitude
from h2fdp.training.local_steps import LocalObjective, LocalWork, PulledObjective


@dataclass(frozen=True)
class FedDyn(PulledObjective):
    """The loss - <h_i, w> + alpha/2 ||w - received||^2, where h_i is the gradient at the last local optimum.

    After an interval h_i <- h_i - alpha (w_i - w(t_k)): at an optimum of the regularised loss that is its gradient.
    """

    alpha: float
    memory: ClassVar[str | None] = "gradients at the last optimum"
    personal: ClassVar[bool] = False
    pull: ClassVar[float | None] = None

    @property
    def towards_received(self) -> float:
        """alpha; h_i comes as the correction."""
        return self.alpha

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """h_i is a function of all that came before."""
        return False

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """- h_i."""
        return -memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """h_i, by the sum of the interval's updates, w(t_k) - w_i."""
        return memory.add(done.updates, alpha=self.alpha)


class FedDynServer(StatefulUpdate):
    """h <- h + alpha (share of the devices) average; w <- w - average - h / alpha.

    With equal weights and m devices the share times the average is (1/m) sum over the participants, as in the paper.
    """

    kept = ("drift",)

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self.drift: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after the average and the drift."""
        drift = self._alpha * uploaded.share * uploaded.average
        self.drift = drift if self.drift is None else self.drift + drift
        return model - uploaded.average - self.drift / self._alpha


@OBJECTIVES.register
class FedDynOptions(ObjectiveOptions):
    """FedDyn's regulariser.

    Attributes:
        alpha: its weight; the server has the same.
    """

    server: ClassVar[str | None] = "feddyn"

    name: Literal["feddyn"] = "feddyn"
    alpha: Magnitude = 0.1

    def build(self) -> LocalObjective:
        """The objective."""
        return FedDyn(self.alpha)


@SERVERS.register
class FedDynServerOptions(ServerOptions):
    """The cloud's part, whose alpha is the devices'."""

    objective: ClassVar[str | None] = "feddyn"

    name: Literal["feddyn"] = "feddyn"

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        assert isinstance(context.objective, FedDyn), "devices and cloud keep their state together"
        return FedDynServer(context.objective.alpha)


name_method(
    "feddyn",
    "dynamic regularisation (Acar et al. 2021)",
    objective="feddyn",
    server="feddyn",
    topology="star",
)
