"""Gradients record by record, whose norms and weighted sums are wanted, but rarely the gradients; and who makes them.

The gradient of a weight matrix is a sum over positions, sum_l delta_l a_l^T, and its squared norm is the sum of the
products of two Gram matrices, <A A^T, D D^T> ("ghost norm", Goodfellow 2015; for convolutions Bu et al. 2022, Li et al.
2022). With one position that is |a|^2 |delta|^2, which costs next to nothing; with many, the gradient is cheaper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

_ROUNDING = 2.0**-22  # of float32 sums of products, to the sum of their sizes


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
        kept: 0 to overwrite the views, 1 to add to them.
    """

    held: Mapping[str, Tensor]
    kept: float
    factor: float

    def add(self, name: str, gradient: Tensor) -> None:
        stored = self.held[name]
        gradient = gradient.view(stored.shape)
        if self.kept:
            stored.add_(gradient, alpha=self.factor)
        else:
            torch.mul(gradient, self.factor, out=stored)

    def add_product(self, name: str, left: Tensor, right: Tensor) -> None:
        self.held[name][0].addmm_(left[0].t(), right[0], beta=self.kept, alpha=self.factor)


Target = Collected | InPlace  # where the sums of the gradients of a stack's parameters go, by the parameters' names


@dataclass(frozen=True)
class Summed:
    """The sums of the records' gradients (n, *shape), where no record's own is asked for."""

    gradients: Tensor

    def add(self, factors: Tensor | None, name: str, target: Target) -> None:
        """Add the sums to the target (`GhostGradients.add`)."""
        assert factors is None, "records are weighted already"
        target.add(name, self.gradients)


@dataclass(frozen=True)
class ExplicitGradients:
    """The gradients of a parameter for the W records of n devices, written out: (n, W, size).

    Attributes:
        as_parameter: from a sum of them, in their order, to the order of the parameter.
    """

    gradients: Tensor
    as_parameter: Callable[[Tensor], Tensor] | None = None

    def squared_norms(self) -> Tensor:
        """(n, W)."""
        norms: Tensor = torch.linalg.vector_norm(self.gradients, dim=-1)
        return norms.square_()

    def merged(self, times: int) -> ExplicitGradients:
        """Sums over the variants of each record, see `PerExampleGradients.merged`."""
        return replace(self, gradients=variants_apart(self.gradients, 1, times).sum(dim=2))

    def add(self, factors: Tensor | None, name: str, target: Target) -> None:
        """Add the weighted gradients to the target (`GhostGradients.add`)."""
        assert factors is not None, "records are weighed"
        total = torch.bmm(factors[:, None, :], self.gradients)[:, 0]
        target.add(name, total if self.as_parameter is None else self.as_parameter(total))

    def without(self, bad: Tensor) -> ExplicitGradients:
        """The gradients with those of bad records set to 0 (`GhostGradients.without`)."""
        return replace(self, gradients=self.gradients.masked_fill(bad[..., None], 0.0))


@dataclass(frozen=True)
class GhostGradients:
    """Gradients sum_l delta_l a_l^T that are never written out.

    Attributes:
        a: (n, W, L, K) inputs of the layer at L positions.
        delta: (n, W, L, O) gradients in its outputs there.
        as_parameter: as of `ExplicitGradients`.
    """

    a: Tensor
    delta: Tensor
    as_parameter: Callable[[Tensor], Tensor] | None = None

    def squared_norms(self) -> Tensor:
        """(n, W)."""
        if self.a.shape[2] == 1:
            inputs, gradients = (torch.linalg.vector_norm(each[:, :, 0], dim=-1) for each in (self.a, self.delta))
            norms: Tensor = inputs * gradients
            return norms.square_()
        a, delta = self.a.flatten(0, 1), self.delta.flatten(0, 1)
        products = torch.bmm(a, a.transpose(1, 2)).mul_(torch.bmm(delta, delta.transpose(1, 2)))
        return rounded_up(products).view(self.a.shape[:2])

    def merged(self, times: int) -> GhostGradients | ExplicitGradients:
        """Positions of all variants are positions of the record, see `PerExampleGradients.merged`."""
        a, delta = (variants_apart(each, 1, times).flatten(2, 3) for each in (self.a, self.delta))
        if ghost_is_cheaper(a.shape[2], a.shape[3], delta.shape[3]):
            return replace(self, a=a, delta=delta)
        return ExplicitGradients((delta.transpose(2, 3) @ a).flatten(2), self.as_parameter)

    def add(self, factors: Tensor | None, name: str, target: Target) -> None:
        """sum_r factors_r g_r of each device to the target, for factors (n, W); None where deltas have them already."""
        weighted = self.delta if factors is None else self.delta * factors[:, :, None, None]
        delta, a = weighted.flatten(1, 2), self.a.flatten(1, 2)
        if self.as_parameter is None:
            target.add_product(name, delta, a)
        else:
            target.add(name, self.as_parameter(torch.bmm(delta.transpose(1, 2), a).flatten(1)))

    def without(self, bad: Tensor) -> GhostGradients:
        """A copy with zero gradients of the records `bad` (n, W), even where they were infinite or undefined."""
        bad = bad[..., None, None]
        return replace(self, a=self.a.masked_fill(bad, 0.0), delta=self.delta.masked_fill(bad, 0.0))


def rounded_up(products: Tensor) -> Tensor:
    """(N,) squared norms of sums over positions, by the products (N, L, L) of what is summed.

    Where positions cancel, little is left but the rounding of what cancelled, above zero or below it. So the norm is
    rounded up by that: else a record could pass its bound.
    """
    cancelling = products.diagonal(dim1=1, dim2=2).sqrt().sum(dim=1).square_()
    return products.sum(dim=(1, 2)).clamp_(min=0.0).add_(cancelling, alpha=_ROUNDING)


class PerExampleGradients(Protocol):
    """The gradients of the W records of n devices in a parameter."""

    def squared_norms(self) -> Tensor:
        """(n, W)."""
        ...

    def add(self, factors: Tensor | None, name: str, target: Target) -> None:
        """Add the records' weighted gradients to the target, see `GhostGradients.add`."""
        ...

    def without(self, bad: Tensor) -> PerExampleGradients:
        """The gradients, those of bad records 0."""
        ...

    def merged(self, times: int) -> PerExampleGradients:
        """The gradients of W / times records, of which so many neighbours are the variants, as sums over these."""
        ...


class Step(ABC):
    """A step of a chain, for n devices with W records each.

    Attributes:
        names: of its parameters.
    """

    names: tuple[str, ...]

    @abstractmethod
    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        """The output (n, W, ...), and what the way back needs."""

    @abstractmethod
    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        """The gradient in the input by that in the output, where it `goes_on`; and those in the parameters.

        Args:
            by_record: whether records' own gradients are wanted, or their sums alone.
        """


Parameters = Mapping[str, Tensor]  # (n, *shape) of each, by name
Gradients = Sequence[Summed | PerExampleGradients]  # by the names of the parameters


def stacked(records: Sequence[Tensor]) -> Tensor:
    """(n, W, ...) the records (W, ...) of devices, without a copy for one; channels stay where they are in memory."""
    whole = records[0] if len(records) == 1 else torch.cat(list(records))
    return whole.view(len(records), -1, *whole.shape[1:])


def variants_apart(values: Tensor, dim: int, times: int) -> Tensor:
    """(..., W, times, ...) of (..., W times, ...): the variants of each record in a dimension of their own."""
    return values.reshape(*values.shape[:dim], -1, times, *values.shape[dim + 1 :])


def ghost_is_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    """Whether two Gram matrices, L^2 (K + O) products, cost less than the gradient, L K O.

    The gradient has half as much for a start: once it is there, the sum takes no second product.

    >>> ghost_is_cheaper(1, 784, 10), ghost_is_cheaper(25, 256, 32), ghost_is_cheaper(64, 1152, 128)
    (True, False, True)
    """
    return 1.5 * positions * (inputs + outputs) < inputs * outputs or positions == 1
