"""Stochastic quantisation of uploads: QSGD (Alistarh et al. 2017), by the largest coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from h2fdp.config.fields import Expect
from h2fdp.privacy.mechanisms.pipeline import Compressor, Moment, compressor
from h2fdp.streams import generator_of

if TYPE_CHECKING:
    from torch import Tensor

SCALE_BITS = 32  # of the largest coordinate, which goes along


@compressor
@dataclass(frozen=True)
class Quantise(Compressor):
    """Each coordinate x becomes A floor(L x / A + u) / L: A = max |x| of its vector, L = 2^(b-1) - 1, u in [0, 1).

    The mean over u is x, whatever the vector; the variance of a coordinate is at most (A / L)^2 / 4. u is private: a
    stream of its own for each device and upload.

    Attributes:
        width: b.

    >>> Quantise(8).message_bits(32 * 1000, 1000)
    8032.0
    """

    width: int
    key: ClassVar[str] = "quantise"
    allowed: ClassVar[Any] = Annotated[int, Field(ge=2, le=16), Expect("a whole number of bits from 2 to 16")]
    meaning: ClassVar[str] = "bits of a coordinate, which is rounded at random so that its mean stays."
    draws: ClassVar[bool] = True

    def message_bits(self, bits: float, size: int) -> float:
        return float(size * self.width + SCALE_BITS)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        levels = 2 ** (self.width - 1) - 1
        for node, vector in zip(at.nodes, updates, strict=True):
            stream = generator_of(at.streams.key(node, f"quantise-{at.kind}", at.interval, at.last_slot))
            uniform = torch.from_numpy(stream.random(vector.numel(), dtype=np.float32)).to(vector)
            scale = vector.abs().max()
            if scale > 0:
                # The largest coordinate and u near 1 may round up to the next level, which no code word has.
                vector.mul_(levels / scale).add_(uniform).floor_().clamp_(max=levels).mul_(scale / levels)
        return updates
