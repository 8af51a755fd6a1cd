"""Federated averaging (McMahan et al. 2017; H2FDP, Eqs. 7-8, 14): devices follow the mean loss, the cloud averages.

Normalised averaging (FedNova, Wang et al. 2020) divides updates by the gradients that they add up.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from h2fdp.algorithms.aggregation import AGGREGATIONS, AggregationOptions, Contributions
from h2fdp.algorithms.registry import (
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    name_method,
)
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded


@OBJECTIVES.register
class Plain(ObjectiveOptions):
    """The loss itself: w <- w - eta g."""

    name: Literal["plain"] = "plain"

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """A step moves by eta times a sum of clipped gradients, each weighted as the gain counts it."""
        return True


class Average(ServerUpdate):
    """w <- w - average."""

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the model after the average."""
        return model - uploaded.average


@SERVERS.register
class AverageOptions(ServerOptions):
    """The average itself."""

    name: Literal["average"] = "average"

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return Average()


name_method("fedavg", "all devices under the cloud, no noise (McMahan et al. 2017)", topology="star")


@AGGREGATIONS.register
class NormalisedAverage(AggregationOptions):
    """Normalised by ||a_i||_1; p_i by `training.weights`.

    w <- w - tau_eff sum_i p_i d_i, d_i = Delta_i / ||a_i||_1, tau_eff = sum_i p_i ||a_i||_1.

    Delta_i is eta times a sum of gradients with the weights a_i (Sec. 3.1): 1 each for plain steps, others with
    momentum or a proximal term. So devices that do more steps than others, or other devices' stragglers, do not pull
    the model towards their own minimum. Where all do the same, this is the average (Algorithm 1; Eqs. 10-11).

    In a tree every aggregator divides what its children upload by the gradients that it adds up. With one aggregation
    an interval that is the formula above, p_i the product of the shares on a device's way to the cloud.
    """

    counts_gradients: ClassVar[bool] = True

    name: Literal["fednova"] = "fednova"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """tau_eff p_i."""
        return np.asarray(uploads.shares * (uploads.shares @ uploads.gradients))

    def normalisers(self, uploads: Contributions) -> np.ndarray:
        """||a_i||_1."""
        return uploads.gradients


name_method(
    "fednova",
    "updates divided by their numbers of local steps before the average (Wang et al. 2020)",
    aggregation="fednova",
    topology="star",
)
