"""Krum: of all uploads the one that lies closest to most of the others (Blanchard et al. 2017).

Of n uploads, of which f may be anything, the score of each is the sum of the squared distances to its n - f - 2 nearest
others. Krum takes the upload with the lowest score; multi-Krum averages the n - f with the lowest scores, which has the
noise of many devices averaged instead of one device's. A single upload can turn the choice, so no bound is known by how
much the result moves with it: where an edge server would add the noise, the rule is refused.
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

from h2fdp.algorithms.aggregation import AGGREGATIONS, Aggregation, Contributions, Visible, weighted_sum
from h2fdp.algorithms.robust import RobustOptions
from h2fdp.config.fields import Expect


@dataclass(frozen=True)
class Krum(Aggregation):
    """Uploads that lie close to most of the others.

    Attributes:
        liars: the share of the uploads that may be anything, below 1/2.
        many: averages all that are kept (multi-Krum); else the best one alone.

    >>> updates = torch.tensor([[1.0], [1.1], [1.3], [99.0]])
    >>> Krum(0.25).combine(list(updates), np.full(4, 1 / 4)).tolist()
    [1.0]
    """

    liars: float
    many: bool = False
    visible: Visible = "each"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The shares, which are equal."""
        return uploads.shares

    def kept(self, count: int) -> int:
        """How many of so many uploads are averaged."""
        return count - self._may_lie(count) if self.many else 1

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


class _Options(RobustOptions):
    """What both rules are stated by.

    Attributes:
        liars: the share of the uploads that may be anything.
    """

    liars: Annotated[float, Field(gt=0, lt=0.5), Expect("a number above 0 and below 0.5")] = 0.2


@AGGREGATIONS.register
class KrumOptions(_Options):
    """The upload that lies closest to most of the others."""

    name: Literal["krum"] = "krum"

    def build(self) -> Aggregation:
        """The aggregation."""
        return Krum(self.liars)


@AGGREGATIONS.register
class MultiKrumOptions(_Options):
    """The average of the uploads that lie closest to most of the others."""

    name: Literal["multi-krum"] = "multi-krum"

    def build(self) -> Aggregation:
        """The aggregation."""
        return Krum(self.liars, many=True)
