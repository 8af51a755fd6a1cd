"""Federated averaging (McMahan et al. 2017; H2FDP, Eqs. 7-8, 14): devices follow the mean loss, the cloud averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
from h2fdp.training.local_steps import LocalObjective, StatelessObjective


@dataclass(frozen=True)
class Plain(StatelessObjective):
    """w <- w - eta g."""

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """A step moves by eta times a sum of clipped gradients, each weighted as the gain counts it."""
        return True


class Average(StatefulUpdate):
    """w <- w - average."""

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after the average."""
        return model - uploaded.average


@OBJECTIVES.register
class PlainOptions(ObjectiveOptions):
    """The loss itself."""

    name: Literal["plain"] = "plain"

    def build(self) -> LocalObjective:
        """The objective."""
        return Plain()


@SERVERS.register
class AverageOptions(ServerOptions):
    """The average itself."""

    name: Literal["average"] = "average"

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return Average()


name_method("fedavg", "all devices under the cloud, no noise (McMahan et al. 2017)", topology="star")
