"""The network of a checked topology file: names given once, templates written out, trust and numbers drawn.

Names key the streams of randomness, so two nodes of one name would share their noise. Every draw comes from a stream
keyed by the edge server's name, so it does not move when the file is rearranged, and trust compares one U(seed, name)
with the probabilities, or with those of the others: raising a probability or a share of trust never un-trusts an edge
server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import Problem
from h2fdp.network.devices import Floats, Rule
from h2fdp.network.kinds import KINDS
from h2fdp.network.links import link_of
from h2fdp.network.network import CLOUD, COLUMNS, MOST_TIERS, Aggregator, Subnet, Trust, TrustSection, default_of
from h2fdp.network.schema import (
    DeviceSection,
    DevicesSection,
    EdgeSection,
    TopologyFile,
    Uniform,
    UpperEdgeSection,
)
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
    """The counts of each section: how many edge servers and, at most, devices there are, and in which tier."""
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


def expand(file: TopologyFile, seed: int) -> dict[str, Any]:
    """The attributes of the `Topology` that a file describes under a seed."""
    trust, streams = file.trust or TrustSection(), Streams(seed)
    subnets: list[dict[str, Any]] = []
    aggregators: list[dict[str, Any]] = []

    def write_out(sections: Sections, parent: str | None) -> None:
        for section in sections:
            link = link_of(file.cloud.link if section.link is None else section.link)
            for number in range(1, section.repeat + 1):
                name = instance(section.name, number, parent)
                node = {"name": name, "trust": section.trust, "link": link, "parent": parent}
                if isinstance(section, EdgeSection):
                    subnets.append(node | _devices(name, section.devices, number, file, streams))
                else:
                    aggregators.append(node)
                    write_out(section.edges, name)

    write_out(file.edges, None)
    drawn: dict[str, Trust] = {}
    for nodes in (subnets, aggregators):
        drawn |= trust.draw([node["name"] for node in nodes if node["trust"] is None], streams)
        for node in nodes:
            node["trust"] = node["trust"] or drawn[node["name"]]
    by_chance = not trust.exact and not trust.relay and (file.trust is not None or bool(drawn))
    return {
        "name": file.name,
        "subnets": tuple(Subnet(**node) for node in subnets),
        "aggregators": tuple(Aggregator(**node) for node in aggregators),
        "radio": file.radio.radio(),
        "trust_probability": trust.bounds[0] if by_chance else None,
        "secure_sum_probability": (trust.secure_sum or 0.0) if by_chance else 0.0,
        "cloud_trust": file.cloud.trust,
    }


def draw(edge: str, name: str, rule: Uniform, size: int, streams: Streams) -> Floats:
    """(size,) numbers of a column; the first ones are the same for every size."""
    stream = streams if rule.seed is None else Streams(rule.seed)
    lowest, highest = rule.uniform
    column = COLUMNS[name]
    drawn = lowest + (highest - lowest) * stream.open(edge, column.stream or name).random(size)
    rounded = drawn if column.decimals is None else np.round(drawn, column.decimals)
    return np.clip(rounded, lowest, highest)


def _devices(
    edge: str, devices: DevicesSection | Sequence[DeviceSection], number: int, file: TopologyFile, streams: Streams
) -> dict[str, Any]:
    """The columns, rules and names of a subnet's devices; the file's `devices:` has what these do not state."""

    def stated_in(section: DeviceSection | DevicesSection, name: str) -> Any:
        stating = section if name in section.model_fields_set else file.devices
        kind = KINDS.get(section.kind or file.devices.kind or "", {})
        return getattr(stating, name) if name in stating.model_fields_set else kind.get(name, getattr(stating, name))

    columns: dict[str, Any] = {}
    if not isinstance(devices, DevicesSection):
        for name in file.columns:
            stated = [stated_in(device, name) for device in devices]
            columns[name] = [
                draw(edge, name, each, position, streams)[-1] if isinstance(each, Uniform) else each
                for position, each in enumerate(stated, start=1)
            ]
        defaults = [f"{edge}/{position}" for position in range(1, len(devices) + 1)]
        names = tuple(
            default if device.name is None else instance(device.name, number, edge)
            for device, default in zip(devices, defaults, strict=True)
        )
        return {"columns": columns, "names": None if list(names) == defaults else names}
    size, rules = devices.count, {}
    if isinstance(size, Uniform):
        least, most = map(int, size.uniform)
        size = int(streams.open(edge, "count").integers(least, most, endpoint=True))
    for name in file.columns:
        rule = stated_in(devices, name)
        if isinstance(rule, Uniform):
            columns[name] = draw(edge, name, rule, size, streams)
            lowest, highest = rule.uniform
            rules[name] = Rule(lowest, highest, streams.seed if rule.seed is None else rule.seed)
        else:
            columns[name] = np.broadcast_to(np.asarray(rule, dtype=np.float64), size)
    return {"columns": columns, "rules": rules}
