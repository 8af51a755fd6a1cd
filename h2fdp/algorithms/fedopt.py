"""Server optimisers: momentum (FedAvgM, Hsu et al. 2019), Adagrad, Adam and Yogi (FedOpt, Reddi et al. 2021)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.registry import SERVERS, ServerContext, ServerOptions, SteppingOptions, name_method
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.fields import Expect, Magnitude

Decay = Annotated[float, Field(ge=0, lt=1), Expect("a number from 0 and below 1")]


class Momentum(ServerUpdate):
    """v <- beta1 v + average; w <- w - server_step v."""

    kept = ("velocity",)

    def __init__(self, options: MomentumOptions) -> None:
        self._options = options
        self.velocity: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after a step along the velocity."""
        past = 0.0 if self.velocity is None else self._options.beta1 * self.velocity
        self.velocity = past + uploaded.average
        return model - self._options.server_step * self.velocity


class Adaptive(ServerUpdate):
    """An adaptive step, a = average: m <- b1 m + (1 - b1) a; v by the options; w <- w - s m / (sqrt(v) + tau).

    m begins at 0 and v at tau^2, all by coordinate and without a correction of the start (Algorithm 2).
    """

    kept = ("first", "second")

    def __init__(self, options: AdaptiveOptions) -> None:
        self._options = options
        self.first: Tensor | None = None
        self.second: Tensor | None = None

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after an adaptive step."""
        of, change = self._options, uploaded.average
        first = torch.zeros_like(change) if self.first is None else self.first
        second = torch.full_like(change, of.adaptivity**2) if self.second is None else self.second
        self.first = of.beta1 * first + (1 - of.beta1) * change
        self.second = of.second_moment(second, change.square())
        return model - of.server_step * self.first / (self.second.sqrt() + of.adaptivity)


@SERVERS.register
class MomentumOptions(SteppingOptions):
    """FedAvgM's.

    Attributes:
        beta1: share of the earlier averages that is kept.
    """

    name: Literal["momentum"] = "momentum"
    beta1: Decay = 0.9

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return Momentum(self)


class AdaptiveOptions(ServerOptions):
    """Options of all adaptive steps.

    Attributes:
        server_step: the length of the cloud's step.
        adaptivity: tau, which is added to the root of v.
        beta1: share of the earlier averages that is kept.
    """

    server_step: Magnitude = 0.01
    adaptivity: Magnitude = 1e-3
    beta1: Decay = 0.9

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return Adaptive(self)

    @abstractmethod
    def second_moment(self, second: Tensor, squared: Tensor) -> Tensor:
        """(M,) the next v, from v and a^2."""


@SERVERS.register
class AdagradOptions(AdaptiveOptions):
    """FedAdagrad's."""

    name: Literal["adagrad"] = "adagrad"
    beta1: Decay = 0.0  # as in the paper's experiments

    def second_moment(self, second: Tensor, squared: Tensor) -> Tensor:
        """v + a^2."""
        return second + squared


class _TwoMoments(AdaptiveOptions):
    """The moments of FedAdam and FedYogi.

    Attributes:
        beta2: share of the second moment v that is kept.
    """

    beta2: Decay = 0.99


@SERVERS.register
class AdamOptions(_TwoMoments):
    """Adam's."""

    name: Literal["adam"] = "adam"

    def second_moment(self, second: Tensor, squared: Tensor) -> Tensor:
        """b2 v + (1 - b2) a^2."""
        return self.beta2 * second + (1 - self.beta2) * squared


@SERVERS.register
class YogiOptions(_TwoMoments):
    """Yogi's."""

    name: Literal["yogi"] = "yogi"

    def second_moment(self, second: Tensor, squared: Tensor) -> Tensor:
        """v - (1 - b2) a^2 sign(v - a^2)."""
        return second - (1 - self.beta2) * squared * (second - squared).sign()


name_method("fedavgm", "momentum at the server (Hsu et al. 2019)", server="momentum", topology="star")
name_method("fedadagrad", "Adagrad at the server (Reddi et al. 2021)", server="adagrad", topology="star")
name_method("fedadam", "Adam at the server (Reddi et al. 2021)", server="adam", topology="star")
name_method("fedyogi", "an adaptive server optimiser (Reddi et al. 2021)", server="yogi", topology="star")
