"""Normalised averaging (FedNova, Wang et al. 2020): updates are divided by the gradients that they add up."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from h2fdp.algorithms.aggregation import AGGREGATIONS, Aggregation, AggregationOptions, Contributions
from h2fdp.algorithms.registry import name_method


class NormalisedAverage(Aggregation):
    """w <- w - tau_eff sum_i p_i d_i, d_i = Delta_i / ||a_i||_1, tau_eff = sum_i p_i ||a_i||_1.

    Delta_i is eta times a sum of gradients with the weights a_i (Sec. 3.1): 1 each for plain steps, others with
    momentum or a proximal term. So devices that do more steps than others, or other devices' stragglers, do not pull
    the model towards their own minimum. Where all do the same, this is the average (Algorithm 1; Eqs. 10-11).

    In a tree every aggregator divides what its children upload by the gradients that it adds up. With one aggregation
    an interval that is the formula above, p_i the product of the shares on a device's way to the cloud.
    """

    def weights(self, uploads: Contributions) -> np.ndarray:
        """tau_eff p_i."""
        return np.asarray(uploads.shares * (uploads.shares @ uploads.gradients))

    def normalisers(self, uploads: Contributions) -> np.ndarray:
        """||a_i||_1."""
        return uploads.gradients


@AGGREGATIONS.register
class FedNovaOptions(AggregationOptions):
    """Normalised by ||a_i||_1; p_i by `training.weights`."""

    counts_gradients: ClassVar[bool] = True

    name: Literal["fednova"] = "fednova"

    def build(self) -> Aggregation:
        """The aggregation."""
        return NormalisedAverage()


name_method(
    "fednova",
    "updates divided by their numbers of local steps before the average (Wang et al. 2020)",
    aggregation="fednova",
    topology="star",
)
