"""Who adds the noise of a subnet, and what its edge server sees of the devices: two facts, one object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from h2fdp.privacy.words import ADDED_BY, NoiseSource

Visible = Literal["uploads", "sum"]


@dataclass(frozen=True)
class TrustModel:
    """What a noise placement makes of the trust in an edge server.

    All that nodes, accounts and audits want to know of it they ask here. Another level of trust is another object, or a
    subclass: see `SecureSum`. Edge servers whose trust models are equal are planned and accounted alike, so a subclass
    with more attributes is a frozen dataclass too, which compares them.

    Attributes:
        noise_from: who adds the noise: nobody, each device, the edge server, or the cloud.
        edge_sees: of its devices: each single upload, or their weighted sum alone.

    >>> [TRUST_MODELS[name].edge_level for name in ("none", "device", "edge", "cloud")]
    [0, 0, 0, 0]
    >>> TrustModel("device", edge_sees="sum").edge_level
    1
    """

    noise_from: NoiseSource
    edge_sees: Visible = "uploads"

    @property
    def noisy(self) -> bool:
        """Whether anybody adds noise."""
        return self.noise_from != "none"

    @property
    def devices_add_noise(self) -> bool:
        """Whether every device does, before anything leaves it."""
        return self.noise_from == "device"

    @property
    def edge_adds_noise(self) -> bool:
        """Whether the edge server does, or a trusted node above it in its place; it may see raw updates."""
        return self.noise_from == "edge"

    @property
    def cloud_adds_noise(self) -> bool:
        """Whether the cloud does; it and all edge servers may see raw updates."""
        return self.noise_from == "cloud"

    @property
    def added_by(self) -> str:
        """Who adds the noise, in words."""
        return ADDED_BY[self.noise_from]

    @property
    def edge_level(self) -> int:
        """The level at which the edge server sees a `PlannedUpload`: 0 by itself, 1 in the subnet's average."""
        return 0 if self.edge_sees == "uploads" else 1

    @property
    def shares_noise(self) -> bool:
        """Whether devices add shares of one noise: sized for their sum, before it is known who drops out."""
        return False

    @property
    def one_noise(self) -> bool:
        """Whether one noise covers the sum of the subnet: the edge server's, or all devices' shares of one."""
        return self.edge_adds_noise or self.shares_noise

    @property
    def colluding(self) -> int:
        """Devices of each sum that tell an observer their shares of its noise."""
        return 0

    def opens(self, started: int, arrived: int) -> bool:
        """Whether the edge server averages what has arrived, of so many devices that began."""
        return arrived > 0

    def hidden_variance(self, parts: np.ndarray) -> float:
        """Variance of the noise on the subnet's average that an observer cannot subtract.

        Args:
            parts: (n,) see `noise_parts`.
        """
        return float((parts**2).sum())

    def exposure(self, weights: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """(..., n) for each noise vector the largest share, times exposure, of a device that it covers by itself.

        An edge server's one vector (n = 1) covers its average, in which every device has its weight; a device's own
        (n = s) covers what it sends, in which it has a share of 1; n = 0 where neither adds any.

        Args:
            weights: (..., s) of the devices in the average, 0 for those that are not in it.
            exposures: (s,) see `Mechanism.exposures`: rates times sensitivities.
        """
        if self.devices_add_noise:
            return exposures
        if self.edge_adds_noise:
            return np.asarray(np.max(weights * exposures, axis=-1, keepdims=True))
        return np.empty(0)

    def noise_parts(self, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(..., n) standard deviations of the independent parts of the noise on the subnet's average.

        Args:
            levels: (..., n) of the noise as it is added.
            weights: (..., s) of the devices in the average.
        """
        return np.asarray(levels * weights) if self.devices_add_noise else levels


TRUST_MODELS: Mapping[str, TrustModel] = MappingProxyType(
    {name: TrustModel(name) for name in ("none", "device", "edge", "cloud")}
)
