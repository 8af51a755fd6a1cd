"""What the cloud tells a mechanism: a subnet's interval before its noise is known, and an upload as it will happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from h2fdp.privacy.releases import Sampling, SubnetReleases
from h2fdp.privacy.words import AggregationKind, NoiseSource


@dataclass(frozen=True)
class SubnetInterval:
    """One interval of a subnet, for which noise is wanted.

    Attributes:
        segments: local steps before each aggregation, the last one global.
        step_size: eta_k.
        weights: (s,) rho_j of the active devices, or (len(segments), s) of those really averaged in each aggregation, 0
            for the others: with fewer devices each weighs more.
        sampling_rates: (s,) q_j.
        records: (s,) D_j.
    """

    source: NoiseSource
    segments: Sequence[int]
    step_size: float
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray


@dataclass(frozen=True)
class Upload:
    """What a subnet's devices upload at one aggregation, or at its end to a controller.

    Attributes:
        interval: from 1.
        first_slot: the slot of the broadcast before it; its steps are at the slots after that.
        slot: of the aggregation.
        source: who adds noise in this subnet.
        step_size: eta_k.
        rows: (s,) rows of the devices whose uploads arrive.
        steps: (s,) their local steps.
        weights: (s,) rho_j, summing to 1.
        sampling_rates, records: (s,) q_j and D_j.
        noise_std: (s,) levels of the devices' noise, (1,) of the edge server's, (0,) where neither adds any.
        share: varrho_c of the subnet in the global average.
        cloud_noise_std: of the cloud's own noise on that average; 0 for none.
        size: s_c, devices of the subnet, active or not.
        edge_is_cloud: see `SubnetReleases`.
        numbers: how many estimates each of them, or the edge server for all, releases at its end.
    """

    interval: int
    first_slot: int
    slot: int
    kind: AggregationKind | Literal["estimate"]
    edge: str
    source: NoiseSource
    step_size: float
    rows: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    sampling_rates: np.ndarray
    records: np.ndarray
    noise_std: np.ndarray
    share: float
    cloud_noise_std: float
    size: int
    sampling: Sampling
    edge_is_cloud: bool
    numbers: int = 0

    def as_releases(self, sensitivity: float | np.ndarray, **changes: Any) -> SubnetReleases:
        """For the ledger: one release of each device, and of the average; `changes` to what the upload itself says."""
        found = SubnetReleases(
            self.interval,
            self.slot,
            self.kind,
            self.edge,
            self.source,
            self.steps,
            sensitivity,
            self.rows,
            self.weights,
            self.sampling_rates,
            self.noise_std,
            self.size,
            self.sampling,
            self.edge_is_cloud,
        )
        return replace(found, **changes)
