"""The network of a checked topology file: names given once, templates written out, trust and numbers drawn.

Names key the streams of randomness, so two nodes of one name would share their noise. Every draw comes from a stream
keyed by the edge server's name, so it does not move when the file is rearranged, and trust compares one U(seed, name)
with the probabilities, or with those of the others: raising a probability or a share of trust never un-trusts an edge
server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import Problem
from h2fdp.network.devices import KINDS, Floats
from h2fdp.network.links import link_of
from h2fdp.network.network import CLOUD, COLUMNS, MOST_TIERS, Aggregator, Subnet, Trust, TrustSection, default_of
from h2fdp.network.schema import DeviceSection, DevicesSection, EdgeSection, TopologyFile, Uniform
from h2fdp.streams import Streams

COUNTER = "{i}"
PARENT = "{parent}"
MOST_EDGES = 100_000
MOST_DEVICES = 10_000_000
Path = tuple[str | int, ...]
Sections = Sequence[EdgeSection]


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
    only = file.edges[0] if len(file.edges) == 1 else None
    star = only is not None and only.devices is not None and only.repeat == 1  # whose edge server may be the cloud's
    first: dict[str, Path] = {}
    problems: dict[Path, str] = {}  # the first of each place
    for path, name, template, repeat in _names(file.edges, (), [None]):
        known = first.get(name)
        if PARENT in name and len(path) == 2:  # names below have it from there
            text = f"{PARENT} stands for the edge server above, and above this one is the cloud alone"
            problems.setdefault(path, text)
        elif name == CLOUD and not (star and len(path) == 2):
            problems.setdefault(path, f'the name "{CLOUD}" is reserved for the cloud')
        elif known == path:
            mark = COUNTER if COUNTER not in template and repeat > 1 else PARENT
            problems.setdefault(path, f'expected {mark} in a name of several nodes, as in "{template}-{mark}"')
        elif known is not None:
            place = document.where((*known, "name"))
            line = place.removeprefix(f"{document.name}:")
            problems.setdefault(path, f'duplicate name "{name}" (first {"at" if line == place else "on line"} {line})')
        first.setdefault(name, path)
    for name, path in {} if problems else first.items():
        edge, number = default_of(name)
        if edge in first and _is_default(reduce(_below, first[edge], file), number):
            problems[path] = f'the name "{name}" is that of a device of edge server "{edge}" already'
    keys = {(*path, "name"): text for path, text in problems.items()}
    return [Problem(text, document.where(key), document.key(key)) for key, text in keys.items()]


def _below(section: Any, key: str | int) -> Any:
    return section[key] if isinstance(key, int) else getattr(section, key)


def _is_default(section: Any, number: int) -> bool:
    """Whether a node has an n-th device, which has no name of its own."""
    devices = getattr(section, "devices", None)
    if isinstance(devices, list):
        return 1 <= number <= len(devices) and devices[number - 1].name is None
    return devices is not None and 1 <= number <= _most(devices.count)


def _names(sections: Sections, path: Path, parents: Sequence[str | None]) -> Iterator[tuple[Path, str, str, int]]:
    """The place and the name of each node below these, as far as it states one; its template, and how often."""
    for at, section in enumerate(sections):
        here, numbers = (*path, "edges", at), range(1, section.repeat + 1)
        marks = [(number, instance(section.name, number, parent)) for parent in parents for number in numbers]
        yield from ((here, name, section.name, section.repeat) for _, name in marks)
        if section.edges is not None:
            yield from _names(section.edges, here, list(dict.fromkeys(name for _, name in marks)))
            continue
        for index, device in enumerate(section.devices if isinstance(section.devices, list) else []):
            for number, name in {name: (number, name) for number, name in marks}.values():
                if device.name is not None:
                    yield (*here, "devices", index), instance(device.name, number, name), device.name, section.repeat


def _most(count: int | Uniform) -> int:
    """The largest number of devices that a count stands for."""
    return int(count.uniform[1]) if isinstance(count, Uniform) else count


def _counts(sections: Sections, above: int, tier: int) -> Iterator[tuple[int, int, int]]:
    """The counts of each section: how many edge servers and, at most, devices there are, and in which tier."""
    for section in sections:
        total, devices = above * section.repeat, section.devices
        count = len(devices) if isinstance(devices, list) else 0 if devices is None else _most(devices.count)
        yield total, total * count, tier
        yield from _counts(section.edges or (), total, tier + 1)


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
                if section.devices is not None:
                    subnets.append(node | _devices(name, section.devices, number, file, streams))
                else:
                    aggregators.append(node)
                    write_out(section.edges or (), name)

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
            rules[name] = {"uniform": rule.uniform, "seed": streams.seed if rule.seed is None else rule.seed}
        else:
            columns[name] = np.broadcast_to(np.asarray(rule, dtype=np.float64), size)
    return {"columns": columns, "rules": rules}
