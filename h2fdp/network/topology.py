"""A network as drawn: a tree of edge servers below the cloud, checked, with the ways to look it up and to make one.

A name is given once in a network: names key the streams of noise, and two nodes of one name would share theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import Problem, UserError
from h2fdp.network.devices import DeviceTable, Integers, Membership
from h2fdp.network.generators import Generated
from h2fdp.network.links import OwnLink
from h2fdp.network.network import CLOUD, MOST_TIERS, Aggregator, CloudTrust, Subnet, Trust, repeated_names, star_of
from h2fdp.network.parts import Part, Replacing
from h2fdp.network.radio import Radio
from h2fdp.network.schema import PARTS
from h2fdp.wording import counted, facts_html, table_html


@dataclass(frozen=True)
class Hierarchy:
    """The tree of aggregators above the devices. The cloud's key is None.

    Attributes:
        parents: the node above each aggregator and edge server.
        children: of the cloud and each aggregator, in the order of the tree; nothing for a lowest edge server.
        heights: 1 for a lowest edge server, else one more than the highest child.
        below: the numbers of the lowest edge servers below a node, which are adjacent; a lowest edge server's own.
    """

    parents: dict[str, str | None]
    children: dict[str | None, tuple[str, ...]]
    heights: dict[str | None, int]
    below: dict[str | None, range]

    def path(self, name: str) -> tuple[str, ...]:
        """The node of this name and all above it, from the lowest up; the cloud is left out."""
        above = self.parents[name]
        return (name,) if above is None else (name, *self.path(above))

    def top_down(self) -> list[str]:
        """Every aggregator and edge server, each before its children, in the order of the tree."""
        listed: list[str] = []
        waiting = list(reversed(self.children[None]))
        while waiting:
            listed.append(waiting.pop())
            waiting += reversed(self.children[listed[-1]])
        return listed


def hierarchy_of(network: str, subnets: Sequence[Subnet], aggregators: Sequence[Aggregator]) -> Hierarchy:
    """The tree of these nodes, whose names differ.

    Args:
        network: the network's name, for messages.
        subnets: the lowest edge servers, in the order of the tree: all below one aggregator are adjacent.
        aggregators: parents before children.

    Raises:
        UserError: a parent that is unknown or comes after its child, an aggregator without children, edge servers of
            one aggregator that are not adjacent, more than MOST_TIERS tiers.
    """
    nodes: list[Aggregator | Subnet] = [*aggregators, *subnets]
    parents = {node.name: node.parent for node in nodes}
    known: set[str | None] = {None}
    for node in nodes:
        if node.parent not in known:
            comes_after = any(each.name == node.parent for each in aggregators)
            words = f'expected a parent among the aggregators, found "{node.parent}"'
            words = "its parent comes after it; expected parents first" if comes_after else words
            raise UserError(words, network, node.name)
        if isinstance(node, Aggregator):
            known.add(node.name)
    childless = {each.name for each in aggregators} - set(parents.values())
    if childless:
        raise UserError(Problem("an aggregator without children", network, name) for name in sorted(childless))
    hierarchy = _in_order(network, subnets, parents)
    if hierarchy.heights[None] > MOST_TIERS + 1:
        raise UserError(f"expected at most {MOST_TIERS} tiers of edge servers", network)
    return hierarchy


def _in_order(network: str, subnets: Sequence[Subnet], parents: dict[str, str | None]) -> Hierarchy:
    """Children, heights and ranges, all from the order of the lowest edge servers."""
    numbers: dict[str | None, list[int]] = {None: list(range(len(subnets)))}
    heights: dict[str | None, int] = {None: 0}
    children: dict[str | None, dict[str, None]] = {None: {}}
    for number, subnet in enumerate(subnets):
        node: str | None = subnet.name
        height = 1
        while node is not None:
            numbers.setdefault(node, []).append(number)
            heights[node] = max(heights.get(node, 0), height)
            children.setdefault(node, {})
            children.setdefault(parents[node], {}).setdefault(node)
            node, height = parents[node], height + 1
        heights[None] = max(heights[None], height)
    for name, own in numbers.items():
        if any(second != first + 1 for first, second in pairwise(own)):
            raise UserError(f'expected the edge servers below "{name}" one after the other', network)
    return Hierarchy(
        parents=parents,
        children={node: tuple(listed) for node, listed in children.items()},
        heights=heights,
        below={node: range(own[0], own[-1] + 1) for node, own in numbers.items()},
    )


if TYPE_CHECKING:
    from h2fdp.network.traces import Trace

    class _Parts:
        carbon: Trace | None
        harvest: Trace | None
else:
    _optional = [(key, Part | None, field(default=None)) for key in PARTS]
    _Parts = make_dataclass("Parts", _optional, frozen=True, kw_only=True)

_BY_DEFAULT = 0.5  # the probability that an edge server is trusted, where a file does not speak of trust


@dataclass(frozen=True)
class Topology(Generated, _Parts):
    """A network as drawn: the cloud, the edge servers below it in one or more tiers, and their devices.

    It has a field for each optional part (`PARTS`); None where the network does not have it.

    Attributes:
        name: the network's name.
        subnets: one for each lowest edge server, in the order of the tree.
        radio: the channel, the same for the whole network.
        trust_probability: the probability with which an edge server was drawn to be trusted where the file states no
            trust; None if it never was.
        aggregators: every edge server between the cloud and the lowest ones, parents before children, kept in the order
            of the tree; none in a network of two tiers.
        secure_sum_probability: that with which an edge server was drawn to hold secure sums; 0 if it never was.
        cloud_trust: `secure-sum` where the cloud learns the sum of what its children send, and nothing else.
        membership: of a network with further rows of some devices (see `with_rows`): which rows are one device's.

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
    cloud_trust: CloudTrust = "untrusted"
    membership: Membership | None = None

    def __post_init__(self) -> None:
        if not self.subnets:
            raise UserError("a network without edge servers", key=self.name)
        above = [aggregator.name for aggregator in self.aggregators]
        if self.membership is None and (repeated := repeated_names(self.subnets, above)):
            raise UserError(Problem(f'two nodes have the name "{name}"', key=self.name) for name in repeated)
        star = len(self.subnets) == 1 and not above
        if not star and CLOUD in {*above, *(subnet.name for subnet in self.subnets)}:
            raise UserError(f'"{CLOUD}" is the name of the cloud', key=self.name)
        if not star and any(subnet.relays is not None for subnet in self.subnets):
            raise UserError("expected relays only in a star", key=self.name)
        order = {name: position for position, name in enumerate(self._hierarchy.top_down())}
        in_order = tuple(sorted(self.aggregators, key=lambda aggregator: order[aggregator.name]))
        object.__setattr__(self, "aggregators", in_order)
        for key, part in self.parts.items():
            part.check(self, key)

    def __repr__(self) -> str:
        trusted = sum(subnet.trusted for subnet in self.subnets)
        size = f"{counted(self.devices, 'device')} under {counted(self.edges, 'edge server')}, {trusted:,} trusted"
        return f"Topology({self.name!r}: {size})"

    def _repr_html_(self) -> str:
        """The view in notebooks: its name, its size, and its first edge servers."""
        trusted = sum(subnet.trusted for subnet in self.subnets)
        facts = {"edge servers": f"{self.edges:,}, {trusted:,} trusted", "devices": f"{self.devices:,}"}
        rows = [{"edge server": each.name, "trust": each.trust, "devices": each.size} for each in self.subnets]
        return facts_html(f"network {self.name}", facts, table_html("", rows, most=8))

    @cached_property
    def _hierarchy(self) -> Hierarchy:
        return hierarchy_of(self.name, self.subnets, self.aggregators)

    @property
    def states_trust(self) -> bool:
        """Whether the file says who is trusted, or how likely; not where trust is drawn by the default probability."""
        return self.trust_probability != _BY_DEFAULT

    @property
    def own_parts(self) -> tuple[OwnPart, ...]:
        """The radio models and the links that are a user's own."""
        links = dict.fromkeys(server.link for server in self.servers())
        return (*self.radio.own_parts, *(link.part for link in links if isinstance(link, OwnLink)))

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

    def device_names(self) -> list[str]:
        """The names of all devices, in the order of the tree.

        >>> Topology.regular(edges=2, devices=1).device_names()
        ['edge-1/1', 'edge-2/1']
        """
        return [name for subnet in self.subnets for name in subnet.device_names()]

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of all `devices`, and of all `edges` of every tier."""
        return {"devices": self.device_names(), "edges": [server.name for server in self.servers()]}

    @property
    def parts(self) -> dict[str, Part]:
        """The optional parts of the network, by key."""
        return {key: part for key in PARTS if (part := getattr(self, key)) is not None}

    @property
    def moving(self) -> str | None:
        """The key of the part by which devices change their edge server; None where they stay."""
        return next((key for key in self.parts if PARTS[key].moves), None)

    @cached_property
    def replacing(self) -> Replacing | None:
        """The part by which some nodes send something else than their uploads; None where none does."""
        return next((part for part in self.parts.values() if isinstance(part, Replacing)), None)

    def replacing_devices(self, number: int) -> tuple[int, ...]:
        """The rows of the devices of the number-th subnet that do so."""
        return self.subnets[number].rows_of(self._replacing) if self._replacing else ()

    @cached_property
    def _replacing(self) -> frozenset[str]:
        return frozenset(() if self.replacing is None else self.replacing.devices)

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
    def firsts(self) -> Integers:
        """(N,) the number of the first device of each subnet; read-only."""
        firsts: Integers = np.cumsum(self.sizes) - self.sizes
        firsts.flags.writeable = False
        return firsts

    @cached_property
    def table(self) -> DeviceTable:
        """All devices as columns: those of the radio, and those that any subnet states.

        >>> table = Topology.regular(edges=2, devices=2).table
        >>> table.home.tolist(), table.row.tolist(), sorted(table.columns)
        ([0, 0, 1, 1], [0, 1, 0, 1], ['distance_m', 'power_dbm'])
        """
        home = np.repeat(np.arange(self.edges, dtype=np.int32), self.sizes)
        firsts = self.firsts.astype(np.int32)
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
            return relays.names, np.array(relays.sizes)
        return tuple(subnet.name for subnet in self.subnets), self.sizes

    @property
    def relayed(self) -> bool:
        """Whether every edge server passes on masked vectors of one secure sum over the whole network."""
        return all(server.trust == "relay" for server in self.servers())

    def as_star(self, trust: Trust = "untrusted") -> Topology:
        """A star of the same devices under the cloud's own edge server; see :func:`h2fdp.network.network.star_of`.

        >>> star = Topology.regular(edges=3, devices=2).as_star()
        >>> star.edges, star.devices, star.subnets[0].name, star.subnets[0].device_name(5)
        (1, 6, 'cloud', 'edge-3/2')
        """
        links = {server.name: server.link for server in self.servers()}
        wires = [[links[name] for name in self.path(subnet.name)] for subnet in self.subnets]
        star = star_of(self.subnets, wires, self.table.columns, trust)
        parts: Any = {key: part.in_star() for key, part in self.parts.items()}
        return Topology(self.name, (star,), self.radio, **parts)

    def with_devices(self, **columns: ArrayLike) -> Topology:
        """A network alike, whose devices have these numbers.

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

    def with_rows(self) -> Topology:
        """The network with a row for each edge server and distance at which a device ever is; itself where they stay.

        >>> still = Topology.regular(edges=2, devices=1)
        >>> still.with_rows() is still
        True
        """
        network = self
        for part in () if self.membership is not None else self.parts.values():
            network = part.with_rows(network)
        return network


GENERATORS: dict[str, Callable[..., Topology]] = {"regular": Topology.regular, "deep": Topology.deep}
