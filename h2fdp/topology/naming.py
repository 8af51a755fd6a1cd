"""Names of edge servers and devices: templates written out, and every name given once.

Names key the streams of randomness, so two nodes of one name would share their noise. The checks work on a document's
plain values, whatever else is wrong with it, so that one reading tells all problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from h2fdp.config import Document
from h2fdp.errors import Problem
from h2fdp.topology.network import CLOUD

COUNTER = "{i}"
MOST_EDGES = 100_000
MOST_DEVICES = 10_000_000
Path = tuple[str | int, ...]


def instance(template: str, number: int) -> str:
    """A template's name for one repetition, counted from 1.

    >>> instance("hall-{i}", 3)
    'hall-3'
    """
    return template.replace(COUNTER, str(number))


def name_problems(document: Document) -> list[Problem]:
    """Duplicate and reserved names, templates without a counter, and networks beyond our bounds."""
    values = document.values()
    edges = values.get("edges") if isinstance(values, dict) else None
    entries = (
        [_Entry(index, edge) for index, edge in enumerate(edges) if isinstance(edge, dict)]
        if isinstance(edges, list)
        else []
    )
    problems = _bounds(document, entries)
    return problems or _Register(document).check(entries)


class _Entry:
    """What one item of `edges:` says about names, as far as it can be understood."""

    def __init__(self, index: int, edge: dict[str, Any]) -> None:
        self.path: Path = ("edges", index)
        self.name = edge["name"] if isinstance(edge.get("name"), str) else None
        repeat = edge.get("repeat", 1)
        self.repeat = repeat if isinstance(repeat, int) and repeat > 1 else 1
        devices = edge.get("devices")
        self.devices: list[str | None] = []
        self.counted = 0
        if isinstance(devices, list):
            given = [device.get("name") if isinstance(device, dict) else None for device in devices]
            self.devices = [name if isinstance(name, str) else None for name in given]
        elif isinstance(devices, dict):
            count = devices.get("count")
            ends = count.get("uniform") if isinstance(count, dict) else [count]
            whole = [end for end in ends if isinstance(end, int)] if isinstance(ends, list) else []
            self.counted = max(whole, default=0)

    @property
    def size(self) -> int:
        return max(self.counted, len(self.devices))

    def names_by_default(self, number: int) -> bool:
        """Whether the device of this number, from 1, has its default name."""
        return number <= self.counted or (number <= len(self.devices) and self.devices[number - 1] is None)


def _bounds(document: Document, entries: list[_Entry]) -> list[Problem]:
    edges = sum(entry.repeat for entry in entries)
    devices = sum(entry.repeat * entry.size for entry in entries)
    where = document.where(("edges",))
    key = document.key(("edges",))
    if edges > MOST_EDGES:
        return [Problem(f"expected at most {MOST_EDGES:,} edge servers, found {edges:,}", where, key)]
    if devices > MOST_DEVICES:
        return [Problem(f"expected at most {MOST_DEVICES:,} devices, found {devices:,}", where, key)]
    return []


@dataclass
class _Register:
    """All names seen so far, with the place of each."""

    document: Document
    first: dict[str, Path] = field(default_factory=dict)
    defaults: dict[str, _Entry] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def check(self, entries: list[_Entry]) -> list[Problem]:
        own_edge = len(entries) == 1 and entries[0].repeat == 1  # a star's one edge server may be the cloud's own
        for entry in entries:
            self._check_templates(entry)
            for path, name in _nodes(entry):
                if name == CLOUD and not (own_edge and len(path) == 2):
                    self._tell(path, f'the name "{CLOUD}" is reserved for the cloud')
                elif name in self.first:
                    self._tell(path, f'duplicate name "{name}" ({self._place(self.first[name])})')
                self.first.setdefault(name, path)
                if len(path) == 2:
                    self.defaults.setdefault(name, entry)
        self._check_default_names()
        return list({(problem.where, problem.key): problem for problem in reversed(self.problems)}.values())[::-1]

    def _check_templates(self, entry: _Entry) -> None:
        if entry.repeat == 1:
            return
        for path, name in ((entry.path, entry.name), *_device_templates(entry)):
            if name is not None and COUNTER not in name:
                self._tell(
                    path, f'expected {COUNTER} in a name under `repeat: {entry.repeat}`, as in "{name}-{COUNTER}"'
                )

    def _check_default_names(self) -> None:
        """A stated name must not be one that another edge server's device has by default."""
        for name, path in self.first.items():
            edge, slash, number = name.rpartition("/")
            if (
                slash
                and edge in self.defaults
                and number.isascii()
                and number.isdigit()
                and number[0] != "0"
                and len(number) < 10
                and self.defaults[edge].names_by_default(int(number))
            ):
                self._tell(path, f'the name "{name}" is that of a device of edge server "{edge}" already')

    def _tell(self, path: Path, text: str) -> None:
        named = (*path, "name")
        self.problems.append(Problem(text, self.document.where(named), self.document.key(named)))

    def _place(self, path: Path) -> str:
        place = self.document.where((*path, "name"))
        line = place.removeprefix(f"{self.document.name}:")
        return f"first on line {line}" if line != place else f"first at {place}"


def _nodes(entry: _Entry) -> Iterator[tuple[Path, str]]:
    """Every stated name, templates written out; a template that lacks its counter once."""
    for path, template in ((entry.path, entry.name), *_device_templates(entry)):
        if template is not None:
            numbers = range(1, entry.repeat + 1) if COUNTER in template else (1,)
            for number in numbers:
                yield path, instance(template, number)


def _device_templates(entry: _Entry) -> Iterator[tuple[Path, str | None]]:
    for index, name in enumerate(entry.devices):
        yield (*entry.path, "devices", index), name
