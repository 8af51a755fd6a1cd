"""Who adds the noise of a subnet, what its edge server sees of the devices, and who else sees what of an upload.

The table of observers is in docs/privacy.md; secure sums, where an edge server sees a sum alone, are here too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

Visible = Literal["uploads", "sum"]


@dataclass(frozen=True)
class Tolerance:
    """What a secure sum withstands.

    Attributes:
        colluding: c, devices of each sum that tell an observer their shares of the noise.
        dropouts: d, devices that may vanish after the sum began: a number, or a share of those that begin if below 1.

    >>> Tolerance(colluding=1, dropouts=0.2).honest_shares(10), Tolerance(dropouts=3).lost(10)
    (7, 3)
    """

    colluding: int = 0
    dropouts: float = 0

    def lost(self, started: int) -> int:
        """d of so many devices."""
        return math.floor(self.dropouts * started + 1e-9) if self.dropouts < 1 else int(self.dropouts)

    def honest_shares(self, started: int) -> int:
        """s - c - d: shares of the noise that an observer is sure not to know; below 1 there is no secure sum."""
        return started - self.colluding - self.lost(started)


KEY_BITS = SHARE_BITS = 256  # of a public key, of a share of a secret: elliptic curves of Bonawitz et al. (2017)


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


@dataclass(frozen=True)
class SecureSum(TrustModel):
    """Each device adds a share of the noise that one trusted edge server would add; the edge server sees the sum alone.

    Of s devices that begin, d may drop out and c may tell their shares: device j adds sigma / (rho_j sqrt(s - c - d))
    to its upload (R8), so that at least s - d shares arrive, of which at least s - c - d are unknown, each of variance
    sigma^2 / (s - c - d) in the sum. What drops out after the shares were added cannot make them smaller: the weights
    of those who arrive are public and divide sensitivity and noise alike.

    Attributes:
        tolerance: beyond it a sum is never opened.
        rounding: b, where sums are of integers modulo 2^b; None for sums of real vectors.

    >>> shares = SecureSum(tolerance=Tolerance(colluding=1, dropouts=1)).exposure(np.full(6, 1 / 6), np.ones(6))
    >>> float((shares[:4] / 6) @ (shares[:4] / 6)) * 6**2  # four unknown shares: the noise of one trusted server
    1.0
    """

    noise_from: NoiseSource = "device"
    edge_sees: Visible = "sum"
    tolerance: Tolerance = field(default_factory=Tolerance)
    rounding: int | None = None

    @property
    def shares_noise(self) -> bool:
        return True

    @property
    def added_by(self) -> str:
        return "the devices, each a share"

    @property
    def colluding(self) -> int:
        return self.tolerance.colluding

    def opens(self, started: int, arrived: int) -> bool:
        return self.tolerance.honest_shares(started) >= 1 and arrived >= started - self.tolerance.lost(started)

    def exposure(self, weights: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """(..., s) that of one trusted edge server, in shares.

        Args:
            weights: (..., s) of all devices that begin: whether some will drop out is not known when noise is added.
        """
        honest = max(self.tolerance.honest_shares(weights.shape[-1]), 1)  # with none, no sum is opened
        largest = np.max(weights * exposures, axis=-1, keepdims=True)
        return np.asarray(largest / (weights * math.sqrt(honest)))

    def hidden_variance(self, parts: np.ndarray) -> float:
        squares = np.sort(parts**2)
        return float(squares[: max(len(squares) - self.colluding, 1)].sum())


Observer = str  # one of `observers`
OBSERVERS: tuple[Observer, ...] = ("edge", "peer", "cloud", "public")  # of a network of one tier


def tier_name(height: int) -> Observer:
    """What an aggregator of this height is called as an observer: it has devices, or `height - 1` tiers, below it.

    >>> tier_name(1), tier_name(3)
    ('edge', 'tier-3')
    """
    return "edge" if height == 1 else f"tier-{height}"


def height_of(observer: Observer) -> int:
    """The height of the aggregator that an observer is; 1 for those that are none.

    >>> height_of("tier-3"), height_of("edge"), height_of("cloud")
    (3, 1, 1)
    """
    name, _, height = observer.partition("-")
    return int(height) if name == "tier" and height.isdigit() else 1


def observers(depth: int = 1) -> tuple[Observer, ...]:
    """All observers in a network with this number of tiers of aggregators below the cloud.

    >>> observers(), observers(depth=3)
    (('edge', 'peer', 'cloud', 'public'), ('edge', 'tier-2', 'tier-3', 'peer', 'cloud', 'public'))
    """
    return (*(tier_name(height) for height in range(1, depth + 1)), *OBSERVERS[1:])


def observers_beside(names: Iterable[str]) -> tuple[Observer, ...]:
    """All observers of a network in which there are these; names of anything else do not matter.

    >>> observers_beside(["claimed", "cloud"]), observers_beside(["tier-2"])
    (('edge', 'peer', 'cloud', 'public'), ('edge', 'tier-2', 'peer', 'cloud', 'public'))
    """
    return observers(max(map(height_of, names), default=1))


def views(
    trust_model: TrustModel,
    heights: Sequence[int] = (1,),
    trusted: int = 0,
    passed: int = 1,
    edge_is_cloud: bool = False,
    sums: Collection[int] = (),
    cloud_sums: bool = False,
) -> dict[Observer, int]:
    """Who sees what of an upload: each observer's level, see `PlannedUpload`.

    An aggregator sees what its child sends, the vector one level below its own; one above the aggregation sees it as
    part of what that broadcast and later sent up. Edge servers that see no more than the sum of their devices' uploads
    see the subnet's average. Aggregators in the trusted chain see raw vectors, which is outside the threat model: they
    have no account, and where the cloud adds the noise that is the whole tree.

    Args:
        heights: of the aggregators above the device, from its edge server up.
        trusted: how many of them, from the first on, form its chain of trust.
        passed: how many of them average the upload: the aggregation is the last one's, or the cloud's after all.
        edge_is_cloud: the edge server is the cloud's own (a star), so that the cloud sees what an edge server would.
        sums: places in `heights`, from 1 on, of aggregators that see the sum of what their children send and nothing
            else; of edge servers the trust model says it.
        cloud_sums: the aggregation is the cloud's, which sees such a sum: then no node sees what its children send.

    >>> views(TrustModel("device")), views(TrustModel("edge"), trusted=1)
    ({'edge': 0, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 1, 'cloud': 1, 'public': 1})
    >>> views(TrustModel("edge"), heights=(1, 2, 3), trusted=1, passed=2)
    {'tier-2': 1, 'tier-3': 2, 'peer': 2, 'cloud': 2, 'public': 2}
    >>> views(TrustModel("device", edge_sees="sum")), views(TrustModel("cloud"))
    ({'edge': 1, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 1, 'public': 1})
    >>> views(TrustModel("device"), heights=(1, 2), passed=2, sums={1}, cloud_sums=True)
    {'edge': 0, 'tier-2': 2, 'peer': 3, 'cloud': 3, 'public': 3}
    """
    if not trust_model.noisy:
        return {}
    if trust_model.cloud_adds_noise:
        return {"peer": passed, "public": passed}
    lowest, last = trust_model.edge_level, passed + cloud_sums
    above = {
        tier_name(height): max(lowest, min(place + (place in sums), last))
        for place, height in enumerate(heights)
        if place >= trusted
    }
    cloud = lowest if edge_is_cloud and trust_model.devices_add_noise else last
    return {**above, "peer": last, "cloud": cloud, "public": last}


NoiseSource = Literal["none", "device", "edge", "cloud"]  # who adds the noise
ADDED_BY: Mapping[NoiseSource, str] = {
    "none": "nobody",
    "device": "each device",
    "edge": "the edge server",
    "cloud": "the cloud",
}
Tier = tuple[int, int]  # of local aggregations: the height of who aggregates, and of the node above it
UNTARGETED = "not targeted"  # the verdict on an observer that noise was not calibrated for
AggregationKind = Literal["local", "global"]
ReleaseKind = Literal["local", "global", "estimate", "step", "central", "output", "objective"]
