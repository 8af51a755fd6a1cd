"""Rules that a minority of liars cannot lead astray: trimmed mean and median by coordinate (Yin et al. 2018), Krum, the
upload that lies closest to most of the others (Blanchard et al. 2017), centred clipping (Karimireddy et al. 2021), and
the geometric median (Pillutla et al. 2022).

Of n updates the k smallest and the k largest values of each coordinate are left out, and the others averaged. The sum
of the values that are kept moves by no more than one of the updates does, whatever the others are, so the result moves
by 1 / (n - 2k) of it at most. Devices need not be honest: up to k of the updates may be anything.

Of n uploads, of which f may be anything, Krum scores each by the sum of the squared distances to its n - f - 2 nearest
others, and takes the one with the lowest score; multi-Krum averages the n - f with the lowest, which has the noise of
many devices averaged. A single upload can turn the choice, so there is no bound on how far the result moves with it:
where an edge server would add the noise, these rules are refused. So is the geometric median, of two uploads any point
between them.

Centred clipping moves a public centre by the mean of the uploads' distances to it, each cut to a radius; l times. To
cut is a projection onto a ball, which moves no further than what it is given: so one upload adds 1 / n of its move in
each step. A step v -> v + mean clip(x_i - v) has the derivative 1 - mean D_i, D_i the derivatives of projections, which
are symmetric and between 0 and 1: it brings two centres no further apart. After l steps the result has moved by l / n
at most, after one as far as an average. The first centre is the model that was broadcast: an update of 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
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
from h2fdp.config.fields import Expect, Magnitude

Half = Annotated[float, Field(gt=0, lt=0.5), Expect("a number above 0 and below 0.5")]


class RobustOptions(AggregationOptions):
    """A rule that leaves out extreme values; its children weigh equally."""

    @property
    def visible(self) -> Visible:
        """Each upload."""
        return "each"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The shares, which are equal."""
        return uploads.shares


class _WithoutExtremes(RobustOptions):
    """The mean by coordinate of the values that remain when as many are left out on each side."""

    @abstractmethod
    def left_out(self, count: int) -> int:
        """k of so many updates."""

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """The combined updates: a value that is not a number counts as one of the largest."""
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
        """The largest number that is possible."""
        return (count - 1) // 2


@AGGREGATIONS.register
class CentredClipping(RobustOptions):
    """v <- v + mean of clip(x_i - v), l times from v = 0.

    Attributes:
        radius: tau, to which distances from v are cut, in the unit of the model.
        iterations: l; noise of trusted edge servers grows with it.

    >>> updates = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, -900.0]])
    >>> [round(each, 3) for each in CentredClipping(radius=1.0).combine(list(updates), np.full(3, 1 / 3)).tolist()]
    [0.3, 0.067]
    """

    name: Literal["centred-clipping"] = "centred-clipping"
    radius: Magnitude = 1.0
    iterations: Annotated[int, Field(ge=1, le=100), Expect("a whole number from 1 to 100")] = 1

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """The combined updates: an upload that has a number which is none moves nothing."""
        return _one_by_one(self._centre, updates)

    def _centre(self, updates: Tensor) -> Tensor:
        finite = _finite(updates)
        centre, updates = torch.zeros_like(updates[0]), torch.where(finite[:, None], updates, 0.0)
        for _ in range(self.iterations):
            moves = updates - centre
            kept = (self.radius / _lengths(moves).clamp(min=_TINY)).clamp(max=1.0) * finite.cpu()
            centre = centre + weighted_sum(moves.unbind(), kept.numpy() / len(moves))
        return centre

    def reach(self, weights: np.ndarray) -> np.ndarray:
        """(n,) l / n."""
        return np.full(len(weights), self.iterations / len(weights))


_TINY = 1e-300  # a length that may be divided by
_STEPS = 200  # of Weiszfeld's, at most
_NEAR = 1e-9  # of the median distance: shorter moves are the end, and what is nearer is at the same point


@AGGREGATIONS.register
class GeometricMedian(RobustOptions):
    """The point of the least sum of distances to all uploads, by Weiszfeld's steps from the median by coordinate.

    Where a step begins at an upload it is corrected as by Vardi and Zhang (2000).

    >>> updates = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [900.0, 900.0]], dtype=torch.float64)
    >>> [round(each, 2) for each in GeometricMedian().combine(list(updates), np.full(5, 1 / 5)).tolist()]
    [0.79, 0.79]
    """

    name: Literal["geometric-median"] = "geometric-median"

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """The combined updates: an upload that has a number which is none is left out."""
        return _one_by_one(self._middle, updates)

    def _middle(self, updates: Tensor) -> Tensor:
        updates = updates[_finite(updates)].contiguous()
        if not len(updates):
            return torch.zeros_like(updates.sum(dim=0))
        middle = Median().combine(updates.unbind(), np.empty(0))
        for _ in range(_STEPS):
            distances = _lengths(updates - middle)
            near = _NEAR * float(distances.median())
            within = distances <= near
            if within.all():
                break
            weights = torch.where(within, 0.0, 1 / distances)
            total = float(weights.sum())
            step = weighted_sum(updates.unbind(), (weights / total).numpy()) - middle
            length = float(torch.linalg.vector_norm(step))
            # Uploads at this very point hold it back, each with a pull of 1 against `total * length` of the others.
            moves = max(0.0, 1 - int(within.sum()) / max(total * length, _TINY))
            middle = middle + moves * step
            if moves * length <= near:
                break
        return middle


def _one_by_one(rule: Callable[[Tensor], Tensor], updates: Sequence[Tensor]) -> Tensor:
    """(..., M) a rule of (n, M) numbers in double precision, for each model by itself: how a length of many rows is
    added up may depend on their number."""
    stacked = torch.stack(tuple(updates)).double()
    models = stacked.reshape(len(updates), -1, stacked.shape[-1]).unbind(1)
    return torch.stack([rule(each.contiguous()) for each in models]).reshape(updates[0].shape).to(updates[0])


def _finite(updates: Tensor) -> Tensor:
    return updates.isfinite().all(dim=1)


def _lengths(vectors: Tensor) -> Tensor:
    """(n,) of (n, M), each by itself."""
    return torch.stack([torch.linalg.vector_norm(vector) for vector in vectors]).cpu()


class _Closest(RobustOptions):
    """Uploads that lie close to most of the others.

    Attributes:
        liars: the share of arbitrary uploads that the rule withstands.
    """

    liars: Half = 0.2

    @abstractmethod
    def kept(self, count: int) -> int:
        """The number of uploads that are averaged, of so many."""

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """The combined updates: of equal scores the first upload's, in the order of the tree."""
        scores, stacked = self.scores(updates), torch.stack(tuple(updates))
        chosen = scores.argsort(dim=0, stable=True)[: self.kept(len(updates))].sort(dim=0).values  # (m, ...)
        selected = stacked.gather(0, chosen[..., None].expand(*chosen.shape, stacked.shape[-1]))
        return weighted_sum(selected.unbind(), np.full(len(selected), 1 / len(selected)))

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
