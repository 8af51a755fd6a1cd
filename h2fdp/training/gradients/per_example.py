"""Gradients record by record, whose norms and weighted sums are wanted, but rarely the gradients; where sums go.

The gradient of a weight matrix is a sum over positions, sum_l delta_l a_l^T, and its squared norm is the sum of the
products of two Gram matrices, <A A^T, D D^T> ("ghost norm", Goodfellow 2015; for convolutions Bu et al. 2022, Li et al.
2022). With one position that is |a|^2 |delta|^2, which costs next to nothing; with many, the gradient is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_ROUNDING = 2.0**-22  # of float32 sums of products, to the sum of their sizes


class Target(Protocol):
    """Where the sums of the gradients of a stack's parameters go, by the parameters' names."""

    def add(self, name: str, gradient: Tensor) -> None:
        """A gradient (n, *shape), or (n, size)."""
        ...

    def add_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """The gradient left^T right of a matrix, by (n, R, outputs) and (n, R, inputs)."""
        ...


class Collected:
    """The gradients of several devices."""

    def __init__(self) -> None:
        self._parts: dict[str, Tensor] = {}

    def add(self, name: str, gradient: Tensor) -> None:
        self._parts[name] = gradient.flatten(1)

    def add_product(self, name: str, left: Tensor, right: Tensor) -> None:
        self.add(name, torch.bmm(left.transpose(1, 2), right))

    def vector(self, names: Iterable[str]) -> Tensor:
        """(n, M) in the order of the names."""
        whole = [self._parts[name] for name in names]
        return whole[0] if len(whole) == 1 else torch.cat(whole, dim=1)


@dataclass(frozen=True)
class InPlace:
    """The gradients of one device, added where they belong without a copy: held = kept held + factor gradient.

    Attributes:
        held: (1, *shape) views of a vector, perhaps of the model.
        kept: 0 to overwrite what is held, 1 to add to it.
    """

    held: Mapping[str, Tensor]
    kept: float
    factor: float

    def add(self, name: str, gradient: Tensor) -> None:
        held = self.held[name]
        gradient = gradient.view(held.shape)
        if self.kept:
            held.add_(gradient, alpha=self.factor)
        else:
            torch.mul(gradient, self.factor, out=held)

    def add_product(self, name: str, left: Tensor, right: Tensor) -> None:
        self.held[name][0].addmm_(left[0].t(), right[0], beta=self.kept, alpha=self.factor)


class PerExampleGradients(Protocol):
    """The gradients of one parameter for the W records of n devices."""

    def squared_norms(self) -> Tensor:
        """(n, W)."""
        ...

    def weighted(self, factors: Tensor) -> Tensor:
        """(n, size of the parameter): sum_r factors_r g_r, for factors (n, W)."""
        ...

    def add(self, factors: Tensor, name: str, target: Target) -> None:
        """The same sum to the target."""
        ...

    def without(self, bad: Tensor) -> PerExampleGradients:
        """The same with the gradients of the records `bad` (n, W) zero, even where they were infinite or undefined."""
        ...


@dataclass(frozen=True)
class ExplicitGradients:
    """Gradients written out: (n, W, size of the parameter)."""

    gradients: Tensor

    def squared_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.gradients, dim=-1)
        return norms.square_()

    def weighted(self, factors: Tensor) -> Tensor:
        return torch.bmm(factors[:, None, :], self.gradients)[:, 0]

    def add(self, factors: Tensor, name: str, target: Target) -> None:
        target.add(name, self.weighted(factors))

    def without(self, bad: Tensor) -> ExplicitGradients:
        return ExplicitGradients(self.gradients.masked_fill(bad[..., None], 0.0))


@dataclass(frozen=True)
class GhostGradients:
    """Gradients sum_l delta_l a_l^T that are never written out.

    Attributes:
        a: (n, W, L, K) inputs of the layer at L positions.
        delta: (n, W, L, O) gradients in its outputs there.
    """

    a: Tensor
    delta: Tensor

    def squared_norms(self) -> Tensor:
        if self.a.shape[2] == 1:
            inputs, gradients = (torch.linalg.vector_norm(each[:, :, 0], dim=-1) for each in (self.a, self.delta))
            norms: Tensor = inputs * gradients
            return norms.square_()
        a, delta = self.a.flatten(0, 1), self.delta.flatten(0, 1)
        products = torch.bmm(a, a.transpose(1, 2)).mul_(torch.bmm(delta, delta.transpose(1, 2)))
        # Where positions cancel, little is left but the rounding of what cancelled, above zero or below it. So the norm
        # is rounded up by that: else a record could pass its bound.
        cancelling = products.diagonal(dim1=1, dim2=2).sqrt().sum(dim=1).square_()
        norms = products.sum(dim=(1, 2)).clamp_(min=0.0).add_(cancelling, alpha=_ROUNDING)
        return norms.view(self.a.shape[:2])

    def weighted(self, factors: Tensor) -> Tensor:
        delta, a = self._rows(factors)
        return torch.bmm(delta.transpose(1, 2), a).flatten(1)

    def add(self, factors: Tensor, name: str, target: Target) -> None:
        target.add_product(name, *self._rows(factors))

    def _rows(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        return (self.delta * factors[:, :, None, None]).flatten(1, 2), self.a.flatten(1, 2)

    def without(self, bad: Tensor) -> GhostGradients:
        bad = bad[..., None, None]
        return GhostGradients(self.a.masked_fill(bad, 0.0), self.delta.masked_fill(bad, 0.0))


@dataclass(frozen=True)
class PermutedGradients:
    """Gradients in another order than the parameter's, which only their sum has to be put into."""

    gradients: PerExampleGradients
    as_parameter: Callable[[Tensor], Tensor]

    def squared_norms(self) -> Tensor:
        return self.gradients.squared_norms()

    def weighted(self, factors: Tensor) -> Tensor:
        return self.as_parameter(self.gradients.weighted(factors))

    def add(self, factors: Tensor, name: str, target: Target) -> None:
        target.add(name, self.weighted(factors))

    def without(self, bad: Tensor) -> PermutedGradients:
        return PermutedGradients(self.gradients.without(bad), self.as_parameter)


def ghost_is_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    """Whether two Gram matrices, L^2 (K + O) products, cost less than the gradient, L K O.

    The gradient has half as much for a start: once it is there, the sum takes no second product.

    >>> ghost_is_cheaper(1, 784, 10), ghost_is_cheaper(25, 256, 32), ghost_is_cheaper(64, 1152, 128)
    (True, False, True)
    """
    return 1.5 * positions * (inputs + outputs) < inputs * outputs or positions == 1
