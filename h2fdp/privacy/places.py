"""The places where noise on an update is added, by trust alone, and who sees which vector (a table: docs/privacy.md).

Secure sums, where an edge server sees a sum alone, are one of these places.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import accumulate
from typing import Any, Literal, Self, TypeVar

import numpy as np

from h2fdp.data.records import Rows
from h2fdp.privacy.modular_sums import IntegerSum

AggregationKind = Literal["local", "global"]
ReleaseKind = Literal["local", "global", "step", "central", "output", "objective"]
Tier = tuple[int, int]  # of local aggregations: the height of who aggregates, and of the node above it
Seen = Literal["each", "sum"]  # of what children send: every vector by itself, or their weighted sum alone
UNTARGETED = "not targeted"  # the verdict on an observer that noise was not calibrated for
KEY_BITS = SHARE_BITS = 256  # of a public key, of a share of a secret: elliptic curves of Bonawitz et al. (2017)

NoiseSource = Literal["none", "device", "edge", "cloud"]
ADDED_BY: Mapping[NoiseSource, str] = {
    "none": "no node",
    "device": "each device",
    "edge": "the edge server",
    "cloud": "the cloud",
}


@dataclass(frozen=True)
class Segment:
    """Local steps from one model that devices receive to the aggregation at their end: where a message is in a run.

    Attributes:
        interval: k, from 0.
        first_slot, last_slot: the steps are at the slots first_slot + 1 .. last_slot, the aggregation at the last one.
        kind: of the aggregation; global where the cloud aggregates.
        own: whether it is the edge server (or the aggregator that asks) that broadcasts, not a node above it.
        step_size: eta_k.
    """

    interval: int
    first_slot: int
    last_slot: int
    kind: AggregationKind = "local"
    own: bool = False
    step_size: float = 0.0

    @property
    def slots(self) -> range:
        """The slots of its steps."""
        return range(self.first_slot + 1, self.last_slot + 1)

    @classmethod
    def row(
        cls, interval: int, slot: int, lengths: Sequence[int], step_size: float, own: Sequence[bool] | None = None
    ) -> tuple[Self, ...]:
        """An interval that begins at `slot`: segments of these numbers of steps, at the end of the last of which the
        cloud aggregates.

        Args:
            own: of all but the last; None: all are the edge server's.

        >>> [(each.first_slot, each.last_slot, each.kind) for each in Segment.row(0, 10, (2, 3), 0.1)]
        [(10, 12, 'local'), (12, 15, 'global')]
        """
        ends, last = [slot, *(slot + end for end in accumulate(lengths))], len(lengths) - 1
        return tuple(
            cls(
                interval,
                ends[at],
                ends[at + 1],
                kind="local" if at < last else "global",
                own=at < last and (own is None or own[at]),
                step_size=step_size,
            )
            for at in range(len(lengths))
        )


@dataclass(frozen=True)
class StageFacts:
    """The public facts that stages need of one aggregation: the planner makes them, plans and orders carry them.

    The ledger's rows follow from the code, too.

    Attributes:
        code: of a sum in which integers stand for the updates; None elsewhere.
        numbers: (s_c,) of the newest release in the noise stream that covers each device of the subnet, its own or its
            edge server's, where its law has a past; empty elsewhere.
    """

    code: IntegerSum | None = None
    numbers: tuple[int, ...] = ()


NO_FACTS = StageFacts()


@dataclass(frozen=True, kw_only=True)
class Cohort(Rows):
    """Devices of a subnet that upload to one aggregation: what orders, stages, averages and accounts know alike.

    Attributes:
        segment: at whose end they upload.
        rows: (s,) of the devices within their subnet, ascending.
        steps: (s,) local steps of each; None where they do not matter, or each slot has one.
        levels: (s,) of the devices' noise as the mechanism planned it, standard deviations where it does not say
            otherwise; (1,) of their edge server's; (0,) where neither adds any.
        facts: the public facts that stages of uploads need.
    """

    segment: Segment
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    steps: np.ndarray | None = None
    levels: np.ndarray = field(default_factory=lambda: np.empty(0))
    facts: StageFacts = NO_FACTS

    def becomes(self, kind: type[Sight], **more: Any) -> Sight:
        """A cohort of these devices as others see them, with what they know besides."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(Cohort)} | more)


Sight = TypeVar("Sight", bound=Cohort)


@dataclass(frozen=True)
class Tolerance:
    """The losses and collusions that a secure sum withstands.

    Attributes:
        colluding: c, devices of each sum that reveal their shares of the noise to an observer.
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

    def opens(self, started: int, arrived: int) -> bool:
        """Whether a sum of so many devices is opened."""
        return self.honest_shares(started) >= 1 and arrived >= started - self.lost(started)


class Holder(Enum):
    """The party that adds noise: a device in each local step, a device to its upload or share of a sum, or a node."""

    STEP = "step"
    DEVICE = "device"
    SHARE = "share"
    NODE = "node"


@dataclass(frozen=True)
class Place:
    """The place where the noise on the updates of a subnet is added.

    Of s devices that begin a secure sum, d may drop out and c may reveal their shares: device j adds sigma / (rho_j
    sqrt(s - c - d)) to its upload (R8), so that at least s - d shares arrive, of which at least s - c - d are unknown,
    each of variance sigma^2 / (s - c - d) in the sum. What drops out after the shares were added cannot make them
    smaller: the weights of those who arrive are public and divide sensitivity and noise alike.

    Attributes:
        node: of a NODE its place among the aggregators above the devices: 0 for the edge server, their number for the
            cloud. This node and those below it may see raw updates.
        tolerance: of the secure sum that shares are made for.

    >>> shares = Place(Holder.SHARE, tolerance=Tolerance(1, 1)).levels(np.full(6, 1 / 6), np.ones(6))
    >>> float((shares[:4] / 6) @ (shares[:4] / 6)) * 6**2  # four unknown shares: the noise of one trusted server
    1.0
    """

    holder: Holder
    node: int = 0
    tolerance: Tolerance = Tolerance()

    @property
    def by_node(self) -> bool:
        """Whether devices send raw updates, and a node adds the noise."""
        return self.holder is Holder.NODE

    @property
    def trusted(self) -> int:
        """Aggregators above the devices, from the edge server on, that may see raw updates; the cloud counts as one."""
        return self.node + 1 if self.by_node else 0

    @property
    def lowest(self) -> int:
        """The level at which an edge server sees uploads (see `vectors_of_observers`): 1 for their sum alone."""
        return int(self.holder is Holder.SHARE)

    def levels(self, weights: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """(n,) how large the noise has to be, for a unit of 1: n = s at devices, 1 at a node.

        A node's one vector covers its average, in which every device has its weight; a device's own covers what it
        sends, in which it has a share of 1.

        Args:
            weights: (s,) of the devices in the average, 0 for those that are not in it; of shares: of all that begin,
                as they are added before anyone can drop out.
            exposures: (s,) see `Mechanism.exposures`.
        """
        if self.by_node:
            return np.asarray(np.max(weights * exposures, axis=-1, keepdims=True))
        if self.holder is not Holder.SHARE:
            return exposures
        honest = max(self.tolerance.honest_shares(weights.shape[-1]), 1)  # with none, no sum is opened
        largest = np.max(weights * exposures, axis=-1, keepdims=True)
        return np.asarray(largest / (weights * math.sqrt(honest)))

    def parts(self, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(..., n) standard deviations of the independent parts of the noise on the subnet's average.

        Args:
            levels: (..., n) of the noise as it is added.
            weights: (..., s) of the devices in the average.
        """
        return levels if self.by_node else np.asarray(levels * weights)

    def source(self, aggregators: int) -> NoiseSource:
        """The party that adds the noise, below this number of aggregators."""
        if not self.by_node:
            return "device"
        return "edge" if self.node < aggregators else "cloud"


Observer = str  # one of `observers`
OBSERVERS: tuple[Observer, ...] = ("edge", "peer", "cloud", "public")  # of a network of one tier
SINGLE_EDGE: Observer = "single-edge"  # where devices move, and `edge` is all edge servers together: the worst one


def tier_name(height: int) -> Observer:
    """The name of an aggregator of this height as an observer: it has devices, or `height - 1` tiers, below it.

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
    >>> observers_beside(["single-edge"])
    ('edge', 'single-edge', 'peer', 'cloud', 'public')
    """
    known = list(names)
    edge, *others = observers(max(map(height_of, known), default=1))
    return (edge, *([SINGLE_EDGE] if SINGLE_EDGE in known else []), *others)


def targeted_as(observer: Observer) -> Observer:
    """The observer whose target is this one's, too."""
    return "edge" if observer == SINGLE_EDGE else observer


def vectors_of_observers(
    place: Place,
    heights: Sequence[int] = (1,),
    passed: int = 1,
    edge_is_cloud: bool = False,
    sums: Collection[int] = (),
    cloud_sums: bool = False,
) -> dict[Observer, int]:
    """The vectors that observers see: 0 single uploads, 1 the subnet's average, 2 and more the averages above it.

    An aggregator sees what its child sends, the vector one level below its own; one above the aggregation sees it as
    part of what that broadcast and later sent up. Edge servers that see no more than the sum of their devices' uploads
    see the subnet's average. Aggregators in the trusted chain see raw vectors, which is outside the threat model: they
    have no account, and where the cloud adds the noise that is the whole tree: the others see its average, above all.

    Args:
        heights: of the aggregators above the device, from its edge server up.
        passed: how many of them average the upload: the aggregation is the last one's, or the cloud's after all.
        edge_is_cloud: the edge server is the cloud's own (a star), so that the cloud sees what an edge server would.
        sums: places in `heights`, from 1 on, of aggregators that see the sum of what their children send and nothing
            else.
        cloud_sums: the aggregation is the cloud's, which sees such a sum: then no node sees what its children send.

    >>> vectors_of_observers(Place(Holder.DEVICE)), vectors_of_observers(Place(Holder.NODE))
    ({'edge': 0, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 1, 'cloud': 1, 'public': 1})
    >>> vectors_of_observers(Place(Holder.NODE), heights=(1, 2, 3), passed=2)
    {'tier-2': 1, 'tier-3': 2, 'peer': 2, 'cloud': 2, 'public': 2}
    >>> vectors_of_observers(Place(Holder.SHARE)), vectors_of_observers(Place(Holder.NODE, node=1))
    ({'edge': 1, 'peer': 1, 'cloud': 1, 'public': 1}, {'peer': 2, 'public': 2})
    >>> vectors_of_observers(Place(Holder.DEVICE), heights=(1, 2), passed=2, sums={1}, cloud_sums=True)
    {'edge': 0, 'tier-2': 2, 'peer': 3, 'cloud': 3, 'public': 3}
    """
    last = passed + (cloud_sums or place.trusted > len(heights))
    levels = {
        tier_name(height): max(place.lowest, min(at + (at in sums), last))
        for at, height in enumerate(heights)
        if at >= place.trusted
    }
    levels["peer"] = last
    if place.trusted <= len(heights):
        levels["cloud"] = place.lowest if edge_is_cloud and not place.by_node else last
    return {**levels, "public": last}
