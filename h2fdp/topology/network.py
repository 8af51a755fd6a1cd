"""The network as values: a tree of edge servers with subnets of devices, their links, their trust. Arrays, not objects.

A million devices as networkx nodes cost 6 s and 0.9 GB; as two arrays for each subnet 0.02 s and 16 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from h2fdp.errors import Problem, UserError
from h2fdp.topology.arrays import FINITE, FINITE_ABOVE_ZERO, Floats, Integers, read_only
from h2fdp.topology.hierarchy import Hierarchy, hierarchy_of
from h2fdp.topology.relays import Relays
from h2fdp.topology.uniqueness import repeated_names

CLOUD = "cloud"


@dataclass(frozen=True)
class Link:
    """The wired link from an edge server to the node above it: the cloud, in a network of two tiers.

    Attributes:
        rate_bps: bits a second; infinite for the cloud's own edge server, whose messages cost nothing.
        power_dbm: the edge server's transmit power.
    """

    rate_bps: float = 100e6
    power_dbm: float = 38.0


@dataclass(frozen=True)
class Radio:
    """The wireless channel from devices to their edge server (H2FDP, Appendix D)."""

    bandwidth_hz: float = 1e6
    noise_dbm_per_hz: float = -173.0
    access: str = "tdma"
    fading: str = "rayleigh"
    fading_floor_db: float = -20.0
    bits_per_parameter: int = 32
    pathloss_db: float = -30.0
    pathloss_exponent: float = 3.75
    reference_m: float = 1.0


@dataclass(frozen=True)
class Compute:
    """The cost of one local step of one device."""

    seconds_per_step: float = 0.0
    joules_per_step: float = 0.0


@dataclass(frozen=True)
class DistanceRule:
    """How a subnet's distances were drawn: uniformly in [lowest_m, highest_m] from the edge's stream under this seed.

    It lets a large network be written in a few bytes for each subnet; the distances themselves stay the truth.
    """

    lowest_m: float
    highest_m: float
    seed: int


@dataclass(frozen=True, eq=False)
class Subnet:
    """A lowest edge server and its s devices.

    Attributes:
        name: the edge server's name, unique among all nodes.
        trusted: whether the edge server is trusted, so that noise is added by it and not by its devices.
        distance_m: (s,) each device's distance to the edge server; read-only.
        power_dbm: (s,) each device's transmit power; read-only.
        link: the edge server's link to the node above it.
        host: the label of the host that should hold this subnet; None for any.
        names: the devices' names; None when they are ``<edge>/1`` to ``<edge>/s``.
        distance_rule: how the distances were drawn, where that is known; no part of equality.
        relays: in a star, the access points that pass the devices' messages on to the cloud; None where the edge server
            is the access point itself. Only the cloud's own edge server has them, in a network without others; they
            are not written to topology files.
        parent: the name of the aggregator above the edge server; None for the cloud.
    """

    name: str
    trusted: bool
    distance_m: Floats
    power_dbm: Floats
    link: Link = Link()
    host: str | None = None
    names: tuple[str, ...] | None = None
    distance_rule: DistanceRule | None = None
    relays: Relays | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        size = len(self.distance_m)
        if size == 0:
            raise UserError("an edge server without devices", key=self.name)
        for name, numbers in (("distance_m", FINITE_ABOVE_ZERO), ("power_dbm", FINITE)):
            object.__setattr__(self, name, read_only(getattr(self, name), numbers, size, f"{self.name}.{name}"))
        if self.names is not None and len(self.names) != size:
            raise UserError(f"expected {size} values, found {len(self.names)}", key=f"{self.name}.names")
        if self.relays is not None and self.relays.devices != size:
            raise UserError(f"expected {size} devices, found {self.relays.devices}", key=f"{self.name}.relays")
        if self.relays is not None and self.link.rate_bps != float("inf"):
            raise UserError("expected an infinite link.rate_bps beside relays", key=self.name)

    @property
    def size(self) -> int:
        """The number of devices s."""
        return len(self.distance_m)

    def device_name(self, index: int) -> str:
        """The name of the device at an index from 0."""
        return f"{self.name}/{index + 1}" if self.names is None else self.names[index]

    def device_names(self) -> list[str]:
        """The names of all devices, in order."""
        return [self.device_name(index) for index in range(self.size)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subnet):
            return NotImplemented
        plain = ("name", "trusted", "link", "host", "names", "relays", "parent")
        arrays = ("distance_m", "power_dbm")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays
        )

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash


@dataclass(frozen=True)
class Aggregator:
    """An edge server above other edge servers.

    Attributes:
        name: unique among all nodes.
        trusted: whether what it holds is shown to nobody else.
        link: its link to the node above it.
        parent: the name of the aggregator above it; None for the cloud.
        host: the label of the host that should hold it; None for any.
    """

    name: str
    trusted: bool
    link: Link = Link()
    parent: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Topology:
    """A network as drawn: the cloud, the edge servers below it in one or more tiers, and their devices.

    Attributes:
        name: what the network is called.
        subnets: one for each lowest edge server, in the order of the tree.
        radio, compute: the channel and the devices' speed, the same for the whole network.
        trust_probability: the probability with which trust was drawn where the file states none; None if it never was.
        aggregators: every edge server between the cloud and the lowest ones, parents before children, kept in the order
            of the tree; none in a network of two tiers.

    >>> topology = Topology.regular(edges=3, devices=2, trust=1.0)
    >>> topology.edges, topology.devices, topology.sizes.tolist(), topology.subnets[0].device_names()
    (3, 6, [2, 2, 2], ['edge-1/1', 'edge-1/2'])
    """

    name: str
    subnets: tuple[Subnet, ...]
    radio: Radio = field(default_factory=Radio)
    compute: Compute = field(default_factory=Compute)
    trust_probability: float | None = None
    aggregators: tuple[Aggregator, ...] = ()

    def __post_init__(self) -> None:
        if not self.subnets:
            raise UserError("a network without edge servers", key=self.name)
        above = [aggregator.name for aggregator in self.aggregators]
        if repeated := repeated_names(self.subnets, above):
            raise UserError(Problem(f'two nodes have the name "{name}"', key=self.name) for name in repeated)
        star = len(self.subnets) == 1 and not above
        if not star and CLOUD in {*above, *(subnet.name for subnet in self.subnets)}:
            raise UserError(f'"{CLOUD}" is the name of the cloud', key=self.name)
        if not star and any(subnet.relays is not None for subnet in self.subnets):
            raise UserError("expected relays in a star alone", key=self.name)
        order = {name: position for position, name in enumerate(self._hierarchy.top_down())}
        in_order = tuple(sorted(self.aggregators, key=lambda aggregator: order[aggregator.name]))
        object.__setattr__(self, "aggregators", in_order)

    @cached_property
    def _hierarchy(self) -> Hierarchy:
        return hierarchy_of(self.name, self.subnets, self.aggregators)

    def servers(self) -> Iterator[Subnet | Aggregator]:
        """Every edge server of every tier, each before those below it, in the order of the tree."""
        by_name: dict[str, Subnet | Aggregator] = {each.name: each for each in self.aggregators}
        by_name |= {each.name: each for each in self.subnets}
        return (by_name[name] for name in self._hierarchy.top_down())

    @property
    def depth(self) -> int:
        """The number of tiers of edge servers below the cloud: 1 where every edge server has devices.

        >>> Topology.regular().depth
        1
        """
        return self.height(None) - 1

    def height(self, name: str | None) -> int:
        """1 for a lowest edge server, else one more than the highest of its children; None for the cloud."""
        return self._hierarchy.heights[name]

    def path(self, name: str) -> tuple[str, ...]:
        """The names of an edge server and of all above it, from the lowest up; the cloud, above all, is left out.

        >>> Topology.regular(edges=2).path("edge-1")
        ('edge-1',)
        """
        return self._hierarchy.path(name)

    def children(self, name: str | None) -> tuple[str, ...]:
        """The names of the edge servers directly below one, or below the cloud (None); none below a lowest one.

        >>> Topology.regular(edges=2).children(None)
        ('edge-1', 'edge-2')
        """
        return self._hierarchy.children[name]

    def below(self, name: str | None) -> range:
        """The numbers, in `subnets`, of the lowest edge servers below one or below the cloud (None); its own for a
        lowest one.

        >>> Topology.regular(edges=3).below("edge-2")
        range(1, 2)
        """
        return self._hierarchy.below[name]

    @property
    def edges(self) -> int:
        """The number of edge servers N."""
        return len(self.subnets)

    @property
    def devices(self) -> int:
        """The number of devices I."""
        return sum(subnet.size for subnet in self.subnets)

    @property
    def sizes(self) -> Integers:
        """(N,) the number of devices of each subnet."""
        return np.array([subnet.size for subnet in self.subnets], dtype=np.int64)

    @property
    def access_points(self) -> tuple[tuple[str, ...], Integers]:
        """Names of the access points, and (A,) the number of devices that send to each, in the order of the devices.

        They are the edge servers or, in a star, those of the tree that it was made of.
        """
        relays = self.subnets[0].relays
        if relays is not None:
            return relays.names, relays.sizes
        return tuple(subnet.name for subnet in self.subnets), self.sizes

    def as_star(self) -> Topology:
        """The same devices under the cloud's own, untrusted edge server; see :func:`h2fdp.topology.star.star_of`.

        >>> star = Topology.regular(edges=3, devices=2).as_star()
        >>> star.edges, star.devices, star.subnets[0].name, star.subnets[0].device_name(5)
        (1, 6, 'cloud', 'edge-3/2')
        """
        from h2fdp.topology.star import star_of  # it builds on this module

        return star_of(self)

    @classmethod
    def regular(
        cls, edges: int = 10, devices: int = 5, trust: float = 0.5, seed: int = 1, name: str | None = None
    ) -> Topology:
        """Every edge server has equally many devices; see :func:`h2fdp.topology.generators.regular`."""
        from h2fdp.topology import generators  # the generators build on this module

        return generators.regular(edges=edges, devices=devices, trust=trust, seed=seed, name=name)

    @classmethod
    def config1(cls, edges: int = 10, trust: float = 0.5, seed: int = 1, name: str | None = None) -> Topology:
        """The paper's Config. 1; see :func:`h2fdp.topology.generators.config1`."""
        from h2fdp.topology import generators

        return generators.config1(edges=edges, trust=trust, seed=seed, name=name)

    @classmethod
    def config2(cls, devices: int = 25, trust: float = 0.5, seed: int = 1, name: str | None = None) -> Topology:
        """The paper's Config. 2; see :func:`h2fdp.topology.generators.config2`."""
        from h2fdp.topology import generators

        return generators.config2(devices=devices, trust=trust, seed=seed, name=name)

    @classmethod
    def deep(
        cls, tiers: Sequence[int] = (2, 5, 5), trust: float = 0.5, seed: int = 1, name: str | None = None
    ) -> Topology:
        """Equally many children everywhere, tier by tier; see :func:`h2fdp.topology.generators.deep`."""
        from h2fdp.topology import generators

        return generators.deep(tiers=tiers, trust=trust, seed=seed, name=name)

    @classmethod
    def geometric(
        cls,
        edges: int = 10,
        devices: int = 5,
        trust: float = 0.5,
        side_m: float = 500.0,
        seed: int = 1,
        name: str | None = None,
    ) -> Topology:
        """Real positions in a square; see :func:`h2fdp.topology.generators.geometric`."""
        from h2fdp.topology import generators

        return generators.geometric(edges=edges, devices=devices, trust=trust, side_m=side_m, seed=seed, name=name)
