"""Gradients of a layer's parameters record by record: their norms first, then their weighted sum, where it belongs.

Whatever is added is what was measured: a record's share of the sum is no longer than its factor times its norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from h2fdp.training.clipping import NormVotes, clip_factors
from h2fdp.training.direct.target import Target
from h2fdp.training.gradients.per_example import GhostGradients, PerExampleGradients


class RecordGradients(Protocol):
    """The gradients of one parameter for the W records of one device."""

    def squared_norms(self) -> Tensor:
        """(W,)."""
        ...

    def without(self, bad: Tensor) -> RecordGradients:
        """The same with the gradients of the records `bad` (W,) zero, even where they were infinite or undefined."""
        ...

    def add(self, factors: Tensor, target: Target) -> None:
        """sum_r factors_r g_r, for factors (W,), to the target."""
        ...


@dataclass(frozen=True)
class Products:
    """Gradients sum_l delta_l a_l^T of a matrix that are never written out, the parameter at `place` of its layer.

    Attributes:
        a: (W, L, K) inputs of the layer at L positions.
        delta: (W, L, O) gradients in its outputs there.
    """

    place: int
    a: Tensor
    delta: Tensor

    def squared_norms(self) -> Tensor:
        return GhostGradients(self.a[None], self.delta[None]).squared_norms()[0]

    def without(self, bad: Tensor) -> Products:
        bad = bad[:, None, None]
        return replace(self, a=self.a.masked_fill(bad, 0.0), delta=self.delta.masked_fill(bad, 0.0))

    def add(self, factors: Tensor, target: Target) -> None:
        scaled = self.delta * factors[:, None, None]
        target.add_product(self.place, scaled.flatten(0, 1), self.a.flatten(0, 1))


@dataclass(frozen=True)
class Given:
    """Gradients that a stack of one device knows how to sum.

    Attributes:
        sides: the sizes of the sum, where a parameter's own dimensions come in another order.
        order: of these, as the parameter has them.
    """

    place: int
    gradients: PerExampleGradients
    sides: tuple[int, ...] = (-1,)
    order: tuple[int, ...] = (0,)

    def squared_norms(self) -> Tensor:
        return self.gradients.squared_norms()[0]

    def without(self, bad: Tensor) -> Given:
        return replace(self, gradients=self.gradients.without(bad[None]))

    def add(self, factors: Tensor, target: Target) -> None:
        target.add(self.place, self.gradients.weighted(factors[None]).view(self.sides).permute(self.order))


def clip_each(
    found: Sequence[Sequence[RecordGradients]],
    norm: float,
    gamma: float | None,
    divisor: float,
    votes: NormVotes | None,
) -> tuple[Sequence[Sequence[RecordGradients]], Tensor]:
    """The gradients, layer by layer, and what to multiply each record's by: its clip factor / divisor, (W,).

    A record whose norm is not finite counts for nothing, and its gradients become zero.

    Args:
        norm: G, in whose place the norm of the votes stands where there are any.
        gamma: see `Clipping`.
        votes: where the records' votes are counted.
    """
    total = torch.stack([each.squared_norms() for layer in found for each in layer]).sum(dim=0)
    bad = total.isfinite().logical_not_()
    if bad.any():
        found = [[each.without(bad) for each in layer] for layer in found]
    norms = total.sqrt_()
    if votes is not None:
        votes.count(norms[None], torch.ones_like(bad)[None])
        norm = votes.norm
    return found, clip_factors(norms, norm, gamma).div_(divisor)
