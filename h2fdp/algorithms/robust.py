"""Rules that a minority of liars cannot lead astray: trimmed mean and median by coordinate (Yin et al. 2018), and Krum,
the upload that lies closest to most of the others (Blanchard et al. 2017).

Of n updates the k smallest and the k largest values of each coordinate are left out, and the others averaged. The sum
of the values that are kept moves by no more than one of the updates does, whatever the others are, so the result moves
by 1 / (n - 2k) of it at most. Updates need not be of devices that tell the truth: up to k of them may be anything.

Of n uploads, of which f may be anything, Krum scores each by the sum of the squared distances to its n - f - 2 nearest
others, and takes the one with the lowest score; multi-Krum averages the n - f with the lowest, which has the noise of
many devices averaged. A single upload can turn the choice, so no bound is known by how much the result moves with it:
where an edge server would add the noise, these rules are refused.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.aggregation import (
    AGGREGATIONS,
    AggregationOptions,
    Contributions,
    Visible,
    weighted_sum,
)
from h2fdp.config.fields import Expect

Half = Annotated[float, Field(gt=0, lt=0.5), Expect("a number above 0 and below 0.5")]


class RobustOptions(AggregationOptions):
    """A rule that leaves out what is extreme; its children weigh equally."""

    @property
    def visible(self) -> Visible:
        """Each upload."""
        return "each"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The shares, which are equal."""
        return uploads.shares


class _WithoutExtremes(RobustOptions):
    """The mean by coordinate of what is left when on each side as many values are left out."""

    @abstractmethod
    def left_out(self, count: int) -> int:
        """k of so many updates."""

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """See `Aggregation.combine`; a value that is not a number counts as one of the largest."""
        count, left_out = len(updates), self.left_out(len(updates))
        kept = torch.stack(tuple(updates)).sort(dim=0).values[left_out : count - left_out]
        return weighted_sum(kept.unbind(), np.full(len(kept), 1 / len(kept)))

    def reach(self, weights: np.ndarray) -> np.ndarray:
        """(n,) 1 / (n - 2k)."""
        count = len(weights)
        return np.full(count, 1 / (count - 2 * self.left_out(count)))


@AGGREGATIONS.register
class TrimmedMean(_WithoutExtremes):
    """The mean by coordinate without extreme values.

    Attributes:
        trim: the share of the uploads that is left out on each side.

    >>> updates = torch.tensor([[1.0, 5.0], [2.0, 4.0], [99.0, 0.0]])
    >>> TrimmedMean(trim=0.4).combine(list(updates), np.full(3, 1 / 3)).tolist()
    [2.0, 4.0]
    """

    name: Literal["trimmed-mean"] = "trimmed-mean"
    trim: Half = 0.2

    def left_out(self, count: int) -> int:
        """k of so many updates."""
        return min(math.floor(self.trim * count + 1e-9), (count - 1) // 2)


@AGGREGATIONS.register
class Median(_WithoutExtremes):
    """The median by coordinate."""

    name: Literal["median"] = "median"

    def left_out(self, count: int) -> int:
        """As many as possible."""
        return (count - 1) // 2


class _Closest(RobustOptions):
    """Uploads that lie close to most of the others.

    Attributes:
        liars: the share of the uploads that may be anything.
    """

    liars: Half = 0.2

    @abstractmethod
    def kept(self, count: int) -> int:
        """How many of so many uploads are averaged."""

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """See `Aggregation.combine`; of equal scores the first upload's, in the order of the tree."""
        scores, stacked = self.scores(updates), torch.stack(tuple(updates))
        chosen = scores.argsort(dim=0, stable=True)[: self.kept(len(updates))].sort(dim=0).values  # (m, ...)
        found = stacked.gather(0, chosen[..., None].expand(*chosen.shape, stacked.shape[-1]))
        return weighted_sum(found.unbind(), np.full(len(found), 1 / len(found)))

    def scores(self, updates: Sequence[Tensor]) -> Tensor:
        """(n, ...) summed squared distances of each upload to its n - f - 2 nearest others, at least to one.

        An upload that has a number which is none is as far as can be from all others.
        """
        count = len(updates)
        if count == 1:
            return torch.zeros(1, *updates[0].shape[:-1], dtype=torch.float64)
        values = torch.stack(tuple(updates)).double()
        apart = torch.stack([(values - each).square().sum(dim=-1) for each in values])  # (n, n, ...)
        apart = apart.nan_to_num(nan=math.inf, posinf=math.inf)
        apart[range(count), range(count)] = math.inf  # itself is none of the others
        return apart.sort(dim=1).values[:, : max(1, count - self._may_lie(count) - 2)].sum(dim=1)

    def _may_lie(self, count: int) -> int:
        """f of so many uploads."""
        return math.floor(self.liars * count + 1e-9)


@AGGREGATIONS.register
class Krum(_Closest):
    """The upload that lies closest to most of the others.

    >>> updates = torch.tensor([[1.0], [1.1], [1.3], [99.0]])
    >>> Krum(liars=0.25).combine(list(updates), np.full(4, 1 / 4)).tolist()
    [1.0]
    """

    name: Literal["krum"] = "krum"

    def kept(self, count: int) -> int:
        """The best one."""
        return 1


@AGGREGATIONS.register
class MultiKrum(_Closest):
    """The average of the uploads that lie closest to most of the others."""

    name: Literal["multi-krum"] = "multi-krum"

    def kept(self, count: int) -> int:
        """All that do not lie."""
        return count - self._may_lie(count)
