"""From a checked topology file to the network itself: names given once, templates written out, trust and numbers drawn.

Names key the streams of randomness, so two nodes of one name would share their noise. Every draw comes from a stream
keyed by the edge server's name, so it does not move when the file is rearranged, and trust compares one U(seed, name)
with the probabilities, or with those of the others: raising a probability or a share of trust never un-trusts an edge
server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from h2fdp.config import Document, Section
from h2fdp.errors import Problem
from h2fdp.network.devices import Floats, Rule
from h2fdp.network.hierarchy import MOST_TIERS, default_of
from h2fdp.network.network import CLOUD, COLUMNS, Aggregator, Link, Subnet
from h2fdp.network.radio import Radio
from h2fdp.network.schema import (
    DeviceSection,
    DevicesSection,
    EdgeSection,
    LinkSection,
    TopologyFile,
    Uniform,
    UpperEdgeSection,
)
from h2fdp.network.trust import TrustProbabilities, TrustSection, TrustShares
from h2fdp.streams import Streams

COUNTER = "{i}"
PARENT = "{parent}"
MOST_EDGES = 100_000
MOST_DEVICES = 10_000_000
Path = tuple[str | int, ...]
Sections = Sequence[EdgeSection | UpperEdgeSection]
Marks = Sequence[tuple[int, str | None]]  # what {i} and {parent} stand for, for each node of a template


def instance(template: str, number: int, parent: str | None = None) -> str:
    """A template's name for one repetition, counted from 1, below the edge server called `parent`.

    >>> instance("hall-{i}", 3)
    'hall-3'
    >>> instance("{parent}-hall-{i}", 3, "north")
    'north-hall-3'
    """
    counted = template.replace(COUNTER, str(number))
    return counted if parent is None else counted.replace(PARENT, parent)


def name_problems(file: TopologyFile, document: Document) -> list[Problem]:
    """Networks beyond our bounds, duplicate and reserved names, templates that stand for several nodes of one name."""
    at_edges = document.where(("edges",)), document.key(("edges",))
    counts = list(_counts(file.edges, 1, 1))
    bounds = (
        (MOST_EDGES, "edge servers", sum(edges for edges, _, _ in counts)),
        (MOST_TIERS, "tiers of edge servers", max(tier for _, _, tier in counts)),
        (MOST_DEVICES, "devices", sum(devices for _, devices, _ in counts)),
    )
    for most, what, found in bounds:
        if found > most:
            return [Problem(f"expected at most {most:,} {what}, found {found:,}", *at_edges)]
    names = _Names(document)
    only = file.edges[0] if len(file.edges) == 1 else None
    names.cloud_is_free = isinstance(only, EdgeSection) and only.repeat == 1  # a star's edge server may be the cloud's
    names.walk(file.edges, (), [None])
    return names.problems or names.clashes_with_defaults()


def _counts(sections: Sections, above: int, tier: int) -> Iterator[tuple[int, int, int]]:
    """Of each section: how many edge servers and, at most, devices there are, and in which tier."""
    for section in sections:
        total = above * section.repeat
        if isinstance(section, UpperEdgeSection):
            yield total, 0, tier
            yield from _counts(section.edges, total, tier + 1)
        else:
            yield total, total * _most_devices(section), tier


def _most_devices(section: EdgeSection) -> int:
    if isinstance(section.devices, list):
        return len(section.devices)
    count = section.devices.count
    return int(count.uniform[1]) if isinstance(count, Uniform) else count


class _Names:
    """All names so far, with the place of each, and the edge servers that have devices."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._first: dict[str, Path] = {}
        self._defaults: dict[str, EdgeSection] = {}
        self.problems: list[Problem] = []
        self.cloud_is_free = False

    def walk(self, sections: Sections, path: Path, parents: Sequence[str | None]) -> None:
        """Take the names of sections below these nodes, and of all below them."""
        for at, section in enumerate(sections):
            here = (*path, "edges", at)
            if not path and PARENT in section.name:
                self._tell(here, f"{PARENT} stands for the edge server above, and above this one is the cloud alone")
                continue
            marks = [(number, parent) for parent in parents for number in range(1, section.repeat + 1)]
            names = self._take(here, section.name, marks)
            if isinstance(section, UpperEdgeSection):
                self.walk(section.edges, here, names)
                continue
            self._defaults |= dict.fromkeys(names, section)
            of_edges = [(number, name) for (number, _), name in zip(marks, names, strict=False)]
            for index, device in enumerate(section.devices if isinstance(section.devices, list) else []):
                if device.name is not None:
                    self._take((*here, "devices", index), device.name, of_edges)

    def _take(self, path: Path, template: str, marks: Marks) -> list[str]:
        names = [instance(template, *each) for each in marks]
        if len(set(names)) < len(names):
            mark = COUNTER if COUNTER not in template and len({number for number, _ in marks}) > 1 else PARENT
            self._tell(path, f'expected {mark} in a name of {len(names):,} nodes, as in "{template}-{mark}"')
            names = names[:1]
        for name in names:
            if name == CLOUD and not (self.cloud_is_free and len(path) == 2):
                self._tell(path, f'the name "{CLOUD}" is reserved for the cloud')
            elif name in self._first:
                place = self._document.where((*self._first[name], "name"))
                line = place.removeprefix(f"{self._document.name}:")
                first = f"first on line {line}" if line != place else f"first at {place}"
                self._tell(path, f'duplicate name "{name}" ({first})')
            self._first.setdefault(name, path)
        return names

    def clashes_with_defaults(self) -> list[Problem]:
        """A stated name must not be one that another edge server's device has by default."""
        for name, path in self._first.items():
            edge, number = default_of(name)
            section = self._defaults.get(edge)
            if section is None or not 1 <= number <= _most_devices(section):
                continue
            if not isinstance(section.devices, list) or section.devices[number - 1].name is None:
                self._tell(path, f'the name "{name}" is that of a device of edge server "{edge}" already')
        return self.problems

    def _tell(self, path: Path, text: str) -> None:
        where, key = self._document.where((*path, "name")), self._document.key((*path, "name"))
        if not self.problems or (self.problems[-1].where, self.problems[-1].key) != (where, key):
            self.problems.append(Problem(text, where, key))


DRAWN_DECIMALS = 3  # drawn distances are whole millimetres: files as drawn stay legible


@dataclass(frozen=True)
class ExpandedNetwork:
    """A network as drawn; see :class:`h2fdp.Topology`, whose attributes these are."""

    name: str
    subnets: tuple[Subnet, ...]
    radio: Radio = field(default_factory=Radio)
    trust_probability: float | None = None
    aggregators: tuple[Aggregator, ...] = ()
    secure_sum_probability: float = 0.0


def expand(file: TopologyFile, seed: int) -> ExpandedNetwork:
    """The network that a file describes under a seed."""
    section = file.trust or TrustSection()
    probabilities, streams = section.drawn, Streams(seed)
    expansion = _Expansion(file.cloud.link, probabilities, streams, file.columns, file.devices)
    expansion.write_out(file.edges, None)
    if section.shares is not None:
        expansion.share_out(section.shares)
    stated = file.trust is None and all(edge.stated_trust is not None for edge in file.every_edge())
    never_drawn = stated or section.shares is not None
    return ExpandedNetwork(
        name=file.name,
        subnets=tuple(expansion.subnets),
        aggregators=tuple(expansion.aggregators),
        radio=file.radio.radio(),
        trust_probability=None if never_drawn else probabilities.trusted,
        secure_sum_probability=0.0 if never_drawn else probabilities.secure_sum,
    )


def draw(edge: str, name: str, rule: Uniform, size: int, streams: Streams) -> Floats:
    """(size,) numbers of a column; the first ones are the same for every size."""
    stream = streams if rule.seed is None else Streams(rule.seed)
    lowest, highest = rule.uniform
    column = COLUMNS[name]
    drawn = lowest + (highest - lowest) * stream.open(edge, column.stream or name).random(size)
    rounded = drawn if column.decimals is None else np.round(drawn, column.decimals)
    return np.clip(rounded, lowest, highest)


@dataclass
class _Expansion:
    """Sections written out to edge servers, in the order of the tree.

    Attributes:
        link: of an edge server that states none.
        probabilities: of the trust in an edge server that states none.
        streams: of every draw.
        columns: of the devices, those that the network has.
        every: the numbers that an edge server's `devices:` do not state.
        unstated: the names of edge servers that state no trust; those that have devices, and those above them.
    """

    link: LinkSection
    probabilities: TrustProbabilities
    streams: Streams
    columns: tuple[str, ...]
    every: Section
    subnets: list[Subnet] = field(default_factory=list)
    aggregators: list[Aggregator] = field(default_factory=list)
    unstated: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def share_out(self, shares: TrustShares) -> None:
        """Trust in just these shares of the edge servers that state none: of those with devices, and of the others."""
        drawn = {name: trust for names in self.unstated for name, trust in shares.draw(names, self.streams).items()}
        self.subnets = [replace(each, trust=drawn.get(each.name, each.trust)) for each in self.subnets]
        self.aggregators = [replace(each, trust=drawn.get(each.name, each.trust)) for each in self.aggregators]

    def write_out(self, sections: Sequence[EdgeSection | UpperEdgeSection], parent: str | None) -> None:
        for section in sections:
            for number in range(1, section.repeat + 1):
                if isinstance(section, EdgeSection):
                    self.subnets.append(self._subnet(section, number, parent))
                else:
                    aggregator = Aggregator(**self._node(section, number, parent))
                    self.aggregators.append(aggregator)
                    self.write_out(section.edges, aggregator.name)

    def _node(self, section: EdgeSection | UpperEdgeSection, number: int, parent: str | None) -> dict[str, Any]:
        """What every edge server has, at any height."""
        name = instance(section.name, number, parent)
        if section.stated_trust is None:
            self.unstated[isinstance(section, UpperEdgeSection)].append(name)
        return {
            "name": name,
            "trust": section.stated_trust or self.probabilities.draw(name, self.streams),
            "link": _link(self.link if section.link is None else section.link),
            "parent": parent,
        }

    def _subnet(self, edge: EdgeSection, number: int, parent: str | None) -> Subnet:
        node = self._node(edge, number, parent)
        if isinstance(edge.devices, DevicesSection):
            return Subnet(**node, **self._devices_alike(node["name"], edge.devices))
        return Subnet(**node, **self._listed_devices(node["name"], edge.devices, number))

    def _stated(self, section: DeviceSection | DevicesSection, name: str) -> Any:
        return getattr(section if name in section.model_fields_set else self.every, name)

    def _devices_alike(self, edge: str, devices: DevicesSection) -> dict[str, Any]:
        streams = self.streams
        size = devices.count if isinstance(devices.count, int) else _draw_count(edge, devices.count, streams)
        columns, rules = {}, {}
        for name in self.columns:
            stated = self._stated(devices, name)
            if isinstance(stated, Uniform):
                columns[name] = draw(edge, name, stated, size, streams)
                rules[name] = Rule(
                    stated.uniform[0], stated.uniform[1], streams.seed if stated.seed is None else stated.seed
                )
            else:
                columns[name] = np.broadcast_to(np.asarray(stated, dtype=np.float64), size)
        return {"columns": columns, "rules": rules}

    def _listed_devices(self, edge: str, devices: Sequence[DeviceSection], number: int) -> dict[str, Any]:
        defaults = [f"{edge}/{position}" for position in range(1, len(devices) + 1)]
        names = tuple(
            default if device.name is None else instance(device.name, number, edge)
            for device, default in zip(devices, defaults, strict=True)
        )
        columns = {
            name: [
                draw(edge, name, stated, position, self.streams)[-1] if isinstance(stated, Uniform) else stated
                for position, stated in enumerate((self._stated(device, name) for device in devices), start=1)
            ]
            for name in self.columns
        }
        return {"columns": columns, "names": None if list(names) == defaults else names}


def _draw_count(name: str, rule: Uniform, streams: Streams) -> int:
    lowest, highest = map(int, rule.uniform)
    return int(streams.open(name, "count").integers(lowest, highest, endpoint=True))


def _link(section: LinkSection) -> Link:
    return Link(rate_bps=section.rate_mbps * 1e6, power_dbm=section.power_dbm)
