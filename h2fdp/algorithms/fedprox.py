"""A pull towards the received model (FedProx, Li et al. 2020; PEDPFL, Shen et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from h2fdp.algorithms.registry import OBJECTIVES, ObjectiveOptions, name_method
from h2fdp.config.fields import Expect
from h2fdp.training.local_steps import LocalObjective, StatelessObjective


@dataclass(frozen=True)
class Proximal(StatelessObjective):
    """The loss plus mu/2 ||w - received||^2: w <- w - eta (g + mu (w - received)).

    The pull is no data, so it is not clipped. Two runs that differ in a record come apart by at most
    d <- |1 - eta mu| d + 2 eta G a step; while eta mu <= 2 that is no more than the plain objective's 2 eta G.
    """

    mu: float

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


@OBJECTIVES.register
class ProximalOptions(ObjectiveOptions):
    """FedProx's pull to the received model.

    Attributes:
        mu: its weight.
    """

    name: Literal["proximal"] = "proximal"
    mu: Annotated[float, Field(ge=0, le=1e9), Expect("a number from 0 to 1e9")] = 0.1

    def build(self) -> LocalObjective:
        """The objective."""
        return Proximal(self.mu)


name_method(
    "fedprox", "a proximal term towards the received model (Li et al. 2020)", objective="proximal", topology="star"
)
