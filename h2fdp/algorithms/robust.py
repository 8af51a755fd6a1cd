"""Rules that a minority of liars cannot lead astray: trimmed mean and median by coordinate (Yin et al. 2018).

Of n updates the k smallest and the k largest values of each coordinate are left out, and the others averaged. The sum
of the values that are kept moves by no more than one of the updates does, whatever the others are, so the result moves
by 1 / (n - 2k) of it at most. Updates need not be of devices that tell the truth: up to k of them may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.aggregation import (
    AGGREGATIONS,
    Aggregation,
    AggregationOptions,
    Contributions,
    Visible,
    weighted_sum,
)
from h2fdp.config.fields import Expect


@dataclass(frozen=True)
class TrimmedMean(Aggregation):
    """The mean by coordinate without the smallest and largest values.

    Attributes:
        trim: the share of the updates that is left out on each side, below 1/2; as many as possible leave the median.

    >>> updates = torch.tensor([[1.0, 5.0], [2.0, 4.0], [99.0, 0.0]])
    >>> TrimmedMean(0.4).combine(list(updates), np.full(3, 1 / 3)).tolist()
    [2.0, 4.0]
    """

    trim: float
    visible: Visible = "each"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The shares, which are equal."""
        return uploads.shares

    def left_out(self, count: int) -> int:
        """k of so many updates."""
        return min(math.floor(self.trim * count + 1e-9), (count - 1) // 2)

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """See `Aggregation.combine`; a value that is not a number counts as one of the largest."""
        count, left_out = len(updates), self.left_out(len(updates))
        kept = torch.stack(tuple(updates)).sort(dim=0).values[left_out : count - left_out]
        return weighted_sum(kept.unbind(), np.full(len(kept), 1 / len(kept)))

    def reach(self, weights: np.ndarray) -> np.ndarray:
        """(n,) 1 / (n - 2k)."""
        count = len(weights)
        return np.full(count, 1 / (count - 2 * self.left_out(count)))


class RobustOptions(AggregationOptions):
    """The options of a rule that leaves out what is extreme; its children weigh equally."""


@AGGREGATIONS.register
class TrimmedMeanOptions(RobustOptions):
    """The mean by coordinate without extreme values.

    Attributes:
        trim: the share of the uploads that is left out on each side.
    """

    name: Literal["trimmed-mean"] = "trimmed-mean"
    trim: Annotated[float, Field(gt=0, lt=0.5), Expect("a number above 0 and below 0.5")] = 0.2

    def build(self) -> Aggregation:
        """The aggregation."""
        return TrimmedMean(self.trim)


@AGGREGATIONS.register
class MedianOptions(RobustOptions):
    """The median by coordinate."""

    name: Literal["median"] = "median"

    def build(self) -> Aggregation:
        """The aggregation."""
        return TrimmedMean(0.5)
