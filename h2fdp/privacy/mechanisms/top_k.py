"""The largest coordinates of uploads alone (top-k sparsification, Stich, Cordonnier and Jaggi 2018, without memory)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from h2fdp.config.fields import OpenProbability
from h2fdp.privacy.mechanisms.pipeline import Compressor, Moment, compressor

if TYPE_CHECKING:
    from torch import Tensor


@compressor
@dataclass(frozen=True)
class TopK(Compressor):
    """All but the k = ceil(share M) coordinates that are farthest from 0 become 0; of equal ones the first stay.

    Attributes:
        share: of the coordinates.

    >>> TopK(0.01).message_bits(32 * 1000, 1000)  # ten numbers, and ten bits to say which each is
    420.0
    """

    share: float
    key: ClassVar[str] = "top_k"
    allowed: ClassVar[Any] = OpenProbability
    meaning: ClassVar[str] = "share of the coordinates, those farthest from 0, that are sent; the others count as 0."

    def message_bits(self, bits: float, size: int) -> float:
        """A number and its place for each; whole vectors where these are shorter."""
        return min(bits, math.ceil(self.share * size) * (bits / size + math.ceil(math.log2(max(size, 2)))))

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        kept = math.ceil(self.share * updates.shape[1])
        smaller = updates.abs().argsort(dim=1, descending=True, stable=True)[:, kept:]
        return updates.scatter_(1, smaller, 0.0)
