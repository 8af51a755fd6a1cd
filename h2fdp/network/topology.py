"""A network as drawn: a tree of edge servers below the cloud, checked, with the ways to look it up and to make one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from h2fdp.errors import Problem, UserError
from h2fdp.network import generators
from h2fdp.network.devices import DeviceTable, Floats, Integers
from h2fdp.network.hierarchy import Hierarchy, hierarchy_of, repeated_names
from h2fdp.network.network import CLOUD, Aggregator, Link, Relays, Subnet
from h2fdp.network.radio import Radio
from h2fdp.network.templates import ExpandedNetwork
from h2fdp.wording import counted, facts_html, table_html

_Arguments = ParamSpec("_Arguments")


def _made(generator: Callable[_Arguments, ExpandedNetwork]) -> Callable[_Arguments, Topology]:
    """The generator, with what it makes as a `Topology`."""

    @wraps(generator)
    def made(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Topology:
        return Topology.drawn(generator(*arguments, **named))

    return made


@dataclass(frozen=True)
class Topology:
    """A network as drawn: the cloud, the edge servers below it in one or more tiers, and their devices.

    Attributes:
        name: what the network is called.
        subnets: one for each lowest edge server, in the order of the tree.
        radio: the channel, the same for the whole network.
        trust_probability: the probability with which an edge server was drawn to be trusted where the file states no
            trust; None if it never was.
        aggregators: every edge server between the cloud and the lowest ones, parents before children, kept in the order
            of the tree; none in a network of two tiers.
        secure_sum_probability: that with which an edge server was drawn to hold secure sums; 0 if it never was.

    >>> topology = Topology.regular(edges=3, devices=2, trust=1.0)
    >>> topology.edges, topology.devices, topology.sizes.tolist(), topology.subnets[0].device_names()
    (3, 6, [2, 2, 2], ['edge-1/1', 'edge-1/2'])
    """

    name: str
    subnets: tuple[Subnet, ...]
    radio: Radio = field(default_factory=Radio)
    trust_probability: float | None = None
    aggregators: tuple[Aggregator, ...] = ()
    secure_sum_probability: float = 0.0

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
            raise UserError("expected relays only in a star", key=self.name)
        order = {name: position for position, name in enumerate(self._hierarchy.top_down())}
        in_order = tuple(sorted(self.aggregators, key=lambda aggregator: order[aggregator.name]))
        object.__setattr__(self, "aggregators", in_order)

    def __repr__(self) -> str:
        trusted = sum(subnet.trusted for subnet in self.subnets)
        size = f"{counted(self.devices, 'device')} under {counted(self.edges, 'edge server')}, {trusted:,} trusted"
        return f"Topology({self.name!r}: {size})"

    def _repr_html_(self) -> str:
        """For notebooks: what it is called, its size, and its first edge servers."""
        trusted = sum(subnet.trusted for subnet in self.subnets)
        facts = {"edge servers": f"{self.edges:,}, {trusted:,} trusted", "devices": f"{self.devices:,}"}
        rows = [{"edge server": each.name, "trust": each.trust, "devices": each.size} for each in self.subnets]
        return facts_html(f"network {self.name}", facts, table_html("", rows, most=8))

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
        return int(self.sizes.sum())

    @cached_property
    def sizes(self) -> Integers:
        """(N,) the number of devices of each subnet; read-only."""
        sizes = np.array([subnet.size for subnet in self.subnets], dtype=np.int64)
        sizes.flags.writeable = False
        return sizes

    @cached_property
    def table(self) -> DeviceTable:
        """All devices as columns: those of the radio, and those that any subnet states.

        >>> table = Topology.regular(edges=2, devices=2).table
        >>> table.home.tolist(), table.row.tolist(), sorted(table.columns)
        ([0, 0, 1, 1], [0, 1, 0, 1], ['distance_m', 'power_dbm'])
        """
        home = np.repeat(np.arange(self.edges, dtype=np.int32), self.sizes)
        firsts = (np.cumsum(self.sizes) - self.sizes).astype(np.int32)
        points = self.access_points[1]
        read = dict.fromkeys([*self.radio.columns, *(name for each in self.subnets for name in each.columns)])
        return DeviceTable(
            home=home,
            row=np.arange(len(home), dtype=np.int32) - firsts[home],
            point=home if points is self.sizes else np.repeat(np.arange(len(points), dtype=np.int32), points),
            columns={name: np.concatenate([subnet.column(name) for subnet in self.subnets]) for name in read},
        )

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
        """The same devices under the cloud's own, untrusted edge server; see :func:`h2fdp.network.topology.star_of`.

        >>> star = Topology.regular(edges=3, devices=2).as_star()
        >>> star.edges, star.devices, star.subnets[0].name, star.subnets[0].device_name(5)
        (1, 6, 'cloud', 'edge-3/2')
        """
        links = {server.name: server.link for server in self.servers()}
        wires = [[links[name] for name in self.path(subnet.name)] for subnet in self.subnets]
        return Topology(self.name, (star_of(self.subnets, wires, self.table.columns),), self.radio)

    def with_devices(self, **columns: ArrayLike) -> Topology:
        """The same network, whose devices have these numbers.

        Args:
            columns: name of a column -> one number, or (I,) one for each device in the order of the tree.

        >>> faster = Topology.regular(edges=2, devices=2).with_devices(cycles_per_record=2e5, cpu_ghz=[1, 2, 3, 4])
        >>> faster.subnets[1].column("cpu_ghz").tolist()
        [3.0, 4.0]
        """
        parts = {
            name: np.split(np.broadcast_to(np.asarray(values, dtype=np.float64), self.devices), np.cumsum(self.sizes))
            for name, values in columns.items()
        }
        return replace(
            self,
            subnets=tuple(
                replace(
                    subnet,
                    columns={**subnet.columns, **{name: values[number] for name, values in parts.items()}},
                    rules={name: rule for name, rule in subnet.rules.items() if name not in parts},
                )
                for number, subnet in enumerate(self.subnets)
            ),
        )

    @classmethod
    def drawn(cls, parts: ExpandedNetwork) -> Topology:
        """The network of what was drawn from a file, or made to order."""
        return cls(**vars(parts))

    regular = staticmethod(_made(generators.regular))
    deep = staticmethod(_made(generators.deep))
    config1 = staticmethod(_made(generators.config1))
    config2 = staticmethod(_made(generators.config2))
    geometric = staticmethod(_made(generators.geometric))


GENERATORS: dict[str, Callable[..., Topology]] = {
    kind: _made(generator) for kind, generator in generators.GENERATORS.items()
}


def star_of(subnets: Sequence[Subnet], wires: Sequence[Sequence[Link]], columns: Mapping[str, Floats]) -> Subnet:
    """The same devices under one untrusted edge server, the cloud's own, whose link costs nothing.

    Every device keeps its name and its numbers; the edge servers stay as relays. The star of a star is
    itself.

    Args:
        subnets: of the network.
        wires: for each of them the links from its edge server up to the cloud.
        columns: (I,) numbers of all their devices.
    """
    return Subnet(
        name=CLOUD,
        trust="untrusted",
        columns=columns,
        link=Link(rate_bps=float("inf"), power_dbm=0.0),
        names=tuple(name for subnet in subnets for name in subnet.device_names()),
        relays=subnets[0].relays or _relays(subnets, [_as_one(links) for links in wires]),
    )


def _relays(subnets: Sequence[Subnet], wires: Sequence[Link]) -> Relays:
    """The lowest edge servers, each with the wires from there to the cloud as one.

    Wires in a row take the sum of their times and of their energies for each message: as one they have
    1 / rate = sum 1 / rate_i and power / rate = sum power_i / rate_i, whatever the message's size.
    """
    return Relays(
        names=tuple(subnet.name for subnet in subnets),
        sizes=np.array([subnet.size for subnet in subnets]),
        rate_bps=np.array([wire.rate_bps for wire in wires]),
        power_dbm=np.array([wire.power_dbm for wire in wires]),
    )


def _as_one(links: Sequence[Link]) -> Link:
    if len(links) == 1:
        return links[0]
    rates = np.array([link.rate_bps for link in links])
    seconds_per_bit = float(np.sum(1 / rates))
    if seconds_per_bit == 0:  # messages cost nothing on any of them
        return links[0]
    with np.errstate(all="ignore"):  # what is not finite, the relays refuse
        joules_per_bit = np.sum(10 ** (np.array([link.power_dbm for link in links]) / 10) / rates)
        return Link(1 / seconds_per_bit, float(10 * np.log10(joules_per_bit / seconds_per_bit)))
