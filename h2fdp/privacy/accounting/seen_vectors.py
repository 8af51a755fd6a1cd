"""What an observer really has of one record: noisy vectors, each the sum of one device's uploads under one noise.

Accounts are about releases, and credit observers with more than they receive. A lower bound may not: it is about these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

Effect: TypeAlias = Literal["batch", "record", "draws", "step", "update"]
"""What a record does to an upload, as `Bound` knows it; `step` is one noisy step whose sum it moves by one gradient."""


class SeenUpload(NamedTuple):
    """One upload of a device as a part of a vector that somebody sees.

    Attributes:
        noise_multiplier: standard deviation of the noise on the whole vector / sensitivity of this part of it.
        steps: m, the local steps that the upload accumulates.
        sampling_rate: q.
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float
    sampling: Literal["poisson", "fixed"]
    effect: Effect


SeenVector: TypeAlias = tuple[SeenUpload, ...]
"""A sum of uploads under one Gaussian noise; uploads of different segments have independent batches."""

SeenVectors: TypeAlias = Mapping[SeenVector, int]
"""How often each was seen."""
