"""The tree of edge servers between the cloud and the devices: checked once, looked up by name.

A name is given once in a network: names key the streams of noise, and two nodes of one name would share theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from h2fdp.errors import Problem, UserError

MOST_TIERS = 20  # of edge servers


class Placed(Protocol):
    """A node with a place in the tree; `parent` is None directly below the cloud."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> str | None: ...


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


def hierarchy_of(network: str, subnets: Sequence[Placed], aggregators: Sequence[Placed]) -> Hierarchy:
    """The tree of these nodes, whose names differ.

    Args:
        network: the network's name, for messages.
        subnets: the lowest edge servers, in the order of the tree: all below one aggregator are adjacent.
        aggregators: parents before children.

    Raises:
        UserError: a parent that is unknown or comes after its child, an aggregator without children, edge servers of
            one aggregator that are not adjacent, more than MOST_TIERS tiers.
    """
    parents: dict[str, str | None] = {}
    for aggregator in aggregators:
        if aggregator.parent is not None and aggregator.parent not in parents:
            known = any(other.name == aggregator.parent for other in aggregators)
            words = "its parent comes after it; expected parents first" if known else _unknown(aggregator.parent)
            raise UserError(words, network, aggregator.name)
        parents[aggregator.name] = aggregator.parent
    above = set(parents)
    for subnet in subnets:
        if subnet.parent is not None and subnet.parent not in above:
            raise UserError(_unknown(subnet.parent), network, subnet.name)
        parents[subnet.name] = subnet.parent
    childless = above - set(parents.values())
    if childless:
        raise UserError(Problem("an aggregator without children", network, name) for name in sorted(childless))
    hierarchy = _in_order(network, subnets, parents)
    if hierarchy.heights[None] > MOST_TIERS + 1:
        raise UserError(f"expected at most {MOST_TIERS} tiers of edge servers", network)
    return hierarchy


def _in_order(network: str, subnets: Sequence[Placed], parents: dict[str, str | None]) -> Hierarchy:
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


def _unknown(parent: str) -> str:
    return f'expected a parent among the aggregators, found "{parent}"'


class Named(Protocol):
    """What a subnet says about names; `names` is None where devices are called `<edge>/<n>`."""

    @property
    def name(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def size(self) -> int: ...


def repeated_names(subnets: Sequence[Named], others: Sequence[str] = ()) -> list[str]:
    """Names that two nodes of the network would have; default names are not written out, so millions cost nothing.

    Args:
        subnets: the lowest edge servers with their devices.
        others: the names of all other nodes.
    """
    counts = Counter(subnet.name for subnet in subnets)
    counts.update(others)
    for subnet in subnets:
        counts.update(subnet.names or ())
    defaults = {subnet.name: subnet.size for subnet in subnets if subnet.names is None}
    return sorted(name for name, count in counts.items() if count > 1 or _is_default(name, defaults))


def default_of(name: str) -> tuple[str, int]:
    """The edge server of whose devices this would be a default name, and the device's number; else 0.

    >>> default_of("north/hall/12"), default_of("hall/012")
    (('north/hall', 12), ('hall', 0))
    """
    edge, _, number = name.rpartition("/")
    plain = number.isascii() and number.isdigit() and number[0] != "0" and len(number) < 10
    return edge, int(number) if plain else 0


def _is_default(name: str, defaults: dict[str, int]) -> bool:
    edge, number = default_of(name)
    return 1 <= number <= defaults.get(edge, 0)
