"""Pulls towards the received model: proximal (FedProx, Li et al. 2020; PEDPFL, Shen et al. 2022), and dynamic
regularisation (FedDyn, Acar et al. 2021)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.registry import (
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    name_method,
)
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.fields import Expect, Magnitude
from h2fdp.training.local_steps import LocalWork


@OBJECTIVES.register
class Proximal(ObjectiveOptions):
    """FedProx's pull to the received model.

    The loss plus mu/2 ||w - received||^2: w <- w - eta (g + mu (w - received)).

    The pull is no data, so it is not clipped. Two runs that differ in a record come apart by at most
    d <- |1 - eta mu| d + 2 eta G a step; while eta mu <= 2 that is no more than the plain objective's 2 eta G.

    Attributes:
        mu: weight of the added term.
    """

    name: Literal["proximal"] = "proximal"
    mu: Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")] = 0.1

    @property
    def towards_received(self) -> float:
        """mu."""
        return self.mu

    @property
    def pull(self) -> float:
        """mu."""
        return self.mu

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """While eta mu <= 2; with momentum nothing is shown of a pull."""
        return step_size * self.mu <= 2.0 and (momentum == 0 or self.mu == 0)


name_method(
    "fedprox", "a proximal term towards the received model (Li et al. 2020)", objective="proximal", topology="star"
)


@OBJECTIVES.register
class FedDyn(ObjectiveOptions):
    """FedDyn's regulariser.

    The loss - <h_i, w> + alpha/2 ||w - received||^2, where h_i is the gradient at the last local optimum. After an
    interval h_i <- h_i - alpha (w_i - w(t_k)): at an optimum of the regularised loss that is its gradient.

    Attributes:
        alpha: weight of the regulariser; the server uses the same.
    """

    server: ClassVar[str | None] = "feddyn"
    memory: ClassVar[str | None] = "gradients at the last optimum"
    pull: ClassVar[float | None] = None

    name: Literal["feddyn"] = "feddyn"
    alpha: Magnitude = 0.1

    @property
    def towards_received(self) -> float:
        """alpha; h_i comes as the correction."""
        return self.alpha

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """- h_i."""
        return -memory

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """h_i, by the sum of the interval's updates, w(t_k) - w_i."""
        return memory.add(done.updates, alpha=self.alpha)


class FedDynServer(ServerUpdate):
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
