"""The axis of aggregation: the rule by which an aggregator combines its children's uploads, and the weights.

Weights depend on public facts alone: whose uploads arrive, how many records they have, how many local steps they did.
So the cloud knows them when it plans an interval, noise is sized by them, and the ledger states them before it starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from torch import Tensor

from h2fdp.config.fields import Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import Origin, Words
from h2fdp.config.own_parts import OwnKind, OwnPart

Numbers = TypeVar("Numbers")


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """Public facts about the uploads of one aggregation: a row for each child of which anything arrives.

    Attributes:
        shares: (n,) by `training.weights`, equal or proportional to `records`; they sum to 1.
        records: (n,) of the devices below whose uploads arrive: of a device its own D_i.
        devices: (n,) how many these are: 1 for a device.
        steps: (n,) local steps behind each upload; of an aggregator the weighted sum over its own children.
        gradients: (n,) ||a_i||_1, how many gradients each upload adds up: its steps, more with momentum, fewer with a
            proximal term; of an aggregator the weighted sum over its own children.
        planned_steps: local steps of a device that finishes all of them.
    """

    shares: np.ndarray
    records: np.ndarray
    devices: np.ndarray
    steps: np.ndarray
    gradients: np.ndarray
    planned_steps: int

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for array in (self.shares, self.records, self.devices, self.steps, self.gradients):
            array.flags.writeable = False


Visible = Literal["sum", "each"]
Link = Literal["device", "edge"]


class Aggregation(ABC):
    """model <- model - sum_j weight_j upload_j / normaliser_j, at every aggregator of the tree alike.

    The node above an aggregator, and the children to which it broadcasts, see this sum and no single upload: the
    ledger has its rows by it. What the aggregator itself sees of its children follows from the trust in it.

    """

    def at(self, link: Link) -> Aggregation:
        """The aggregation of uploads by `device`s to the lowest edge servers, or by `edge` servers."""
        return self

    @property
    def visible(self) -> Visible:
        """`each` where `combine` is no function of that sum: then accounts assume that all observers see each upload by
        itself, and an upload is hidden by its own noise alone."""
        return "sum"

    @abstractmethod
    def weights(self, uploads: Contributions) -> np.ndarray:
        """(n,) of the normalised uploads, above 0. They need not sum to 1.

        A function of `uploads` and nothing else: it is asked more than once about the same interval.
        """

    def normalisers(self, uploads: Contributions) -> np.ndarray | None:
        """(n,) by which each child divides its upload, above 0; None for uploads as they are.

        A device's own noise is on what it sends, so it is divided too: a device whose normaliser is smaller than that
        of all planned steps adds less, though never less than its own steps ask for.
        """
        return None

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """(..., M), what the aggregator subtracts from its model: of n updates (..., M), in the order of the tree.

        Args:
            weights: (n,) of the uploads, divided by the normalisers if there are any.
        """
        return weighted_sum(updates, weights)

    def reach(self, weights: np.ndarray) -> np.ndarray | None:
        """(n,) how far the result moves at most (L2) where one of the updates moves by 1; None without a bound.

        Args:
            weights: see `combine`.
        """
        return weights if self.visible == "sum" else None


def weighted_sum(vectors: Iterable[Tensor], weights: np.ndarray, before: Tensor | None = None) -> Tensor:
    """sum_j weights_j vectors_j, added in order: element by element, so that no layout changes a bit.

    Args:
        before: the sum of those before these, which is overwritten.
    """
    total = before
    for vector, weight in zip(vectors, weights.tolist(), strict=True):
        total = vector * weight if total is None else total.add_(vector, alpha=weight)
    assert total is not None, "there are vectors"
    return total


def upload_weights(aggregation: Aggregation, uploads: Contributions) -> tuple[np.ndarray, np.ndarray | None]:
    """(n,) weights of the uploads before they are normalised, and (n,) the normalisers, if any.

    Raises:
        UserError: numbers that no average can be made of.
    """
    weights, normalisers = aggregation.weights(uploads), aggregation.normalisers(uploads)
    if weights is not uploads.shares:
        weights = _above_0(weights, "weights", aggregation, len(uploads.shares))
    if normalisers is None:
        return weights, None
    normalisers = _above_0(normalisers, "normalisers", aggregation, len(uploads.shares))
    return weights / normalisers, normalisers


def _above_0(stated: Any, what: str, aggregation: Aggregation, count: int) -> np.ndarray:
    if isinstance(aggregation, OwnAggregation):
        origin = aggregation.origin
    else:
        origin = Origin(type(aggregation).__name__, key="method.aggregation")
    expected = f"{what} above 0 for {count} upload{'s' if count > 1 else ''}"
    try:
        numbers = np.array(np.real(stated) if np.iscomplexobj(stated) else stated, dtype=np.float64)
    except (TypeError, ValueError):
        raise origin.wrong(what, expected, stated) from None
    if np.iscomplexobj(stated):
        raise origin.wrong(what, expected, Words("complex numbers"))
    if numbers.shape != (count,) or not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise origin.wrong(what, expected, Words(_few(numbers)))
    return numbers


class AggregationOptions(Aggregation, Options):
    """An aggregation with its options.

    Attributes:
        counts_gradients: it reads `Contributions.gradients`, so that uploads must be sums of gradients.
    """

    counts_gradients: ClassVar[bool] = False

    @property
    def by_link(self) -> dict[Link, AggregationOptions | OwnPart]:
        """Link -> the section of its aggregation: this one."""
        return {"device": self, "edge": self}

    def made(self) -> Aggregation:
        """The aggregation of the section: itself."""
        return self


AGGREGATIONS: Choices[AggregationOptions] = Choices(
    OwnKind("an aggregation, derived from `h2fdp.algorithms.Aggregation`", ("weights", "normalisers"))
)


def aggregation_of(section: AggregationOptions | OwnPart) -> Aggregation:
    """The aggregation that a section describes."""
    if isinstance(section, OwnPart):
        return OwnAggregation(section.make(), section.origin)
    return section.made()


def rules_in(section: AggregationOptions | OwnPart) -> dict[Link, AggregationOptions | OwnPart]:
    """Link -> the section of its aggregation."""
    return {"device": section, "edge": section} if isinstance(section, OwnPart) else section.by_link


class OwnAggregation(Aggregation):
    """A user's own, whose answers are checked before anything is released by them."""

    def __init__(self, own: Aggregation, origin: Origin) -> None:
        self._own, self.origin = own, origin

    @property
    def visible(self) -> Visible:
        """`each` where it combines uploads in a way of its own."""
        return "each" if self._defines("combine") else "sum"

    def _defines(self, method: str) -> bool:
        inherited = getattr(Aggregation, method)
        return getattr(type(self._own), method, inherited) is not inherited

    def combine(self, updates: Sequence[Tensor], weights: np.ndarray) -> Tensor:
        """The combined updates; see `Aggregation.combine`.

        Raises:
            UserError: the user's code fails, or answers with something else than a vector of the model's length.
        """
        if self.visible == "sum":
            return super().combine(updates, weights)
        combined = self.origin.call("combine", self._own.combine, updates, weights)
        if not isinstance(combined, Tensor) or combined.shape != updates[0].shape or combined.dtype != updates[0].dtype:
            raise self.origin.wrong("combine", f"a tensor like each update, {tuple(updates[0].shape)}", combined)
        return combined

    def reach(self, weights: np.ndarray) -> np.ndarray | None:
        """The reach as its user states it, for noise is sized by it; `Aggregation.reach` where it states nothing.

        Raises:
            UserError: the user's code fails, or gives no numbers above 0.
        """
        if self.visible == "sum" or not self._defines("reach"):
            return super().reach(weights)
        reaches = self.origin.call("reach", self._own.reach, weights)
        return None if reaches is None else _above_0(reaches, "reach", self, len(weights))

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The weights; see `Aggregation.weights`.

        Raises:
            UserError: the user's code fails, or answers otherwise when it is asked again.
        """
        return self._repeated("weights", self._own.weights, uploads)

    def normalisers(self, uploads: Contributions) -> np.ndarray | None:
        """The normalisers; see `Aggregation.normalisers`.

        Raises:
            UserError: the user's code fails, or answers otherwise when it is asked again.
        """
        return self._repeated("normalisers", self._own.normalisers, uploads)

    def _repeated(self, what: str, rule: Callable[[Contributions], Numbers], uploads: Contributions) -> Numbers:
        """A rule's answer, the same both times: noise is sized by it before the uploads are averaged."""
        once, again = (self.origin.call(what, rule, uploads) for _ in range(2))
        try:
            first, second = np.asarray(once), np.asarray(again)
        except ValueError:
            return once  # no array at all, which its user reports
        if first.dtype.kind in "fiu" and not np.array_equal(first, second, equal_nan=True):
            words = Words(f"{_few(first)}, and {_few(second)} when asked again")
            raise self.origin.wrong(what, f"the same {what} for the same facts", words)
        return once


def _few(numbers: np.ndarray) -> str:
    return np.array2string(numbers, threshold=5, edgeitems=2)


@AGGREGATIONS.register
class WeightedAverage(AggregationOptions):
    """The average by `training.weights`: sum_j rho_j upload_j, (9)-(12) and (14) of H2FDP."""

    name: Literal["average"] = "average"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """The shares."""
        return uploads.shares
