"""The question that the cloud puts to a mechanism: the noise on an interval of a subnet, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from h2fdp.privacy.trust_model import TrustModel
from h2fdp.privacy.words import Tier


@dataclass(frozen=True)
class NoiseRequest:
    """One interval of a subnet, for which noise is wanted.

    Attributes:
        segments: local steps before each aggregation, the last one global.
        step_size: eta_k.
        weights: (s,) of the uploads of the active devices, or (len(segments), s) of those that arrive at each
            aggregation, 0 for the others: with fewer devices each weighs more.
        sampling_rates: (s,) q_j.
        records: (s,) D_j.
        tiers: the tier of each local aggregation; empty in a network of one tier.
        portions: (len(segments), s) the share of the noise on all planned steps that each device's upload asks for;
            None for all of it.
    """

    trust_model: TrustModel
    segments: Sequence[int]
    step_size: float
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray
    tiers: Sequence[Tier] = ()
    portions: np.ndarray | None = None
