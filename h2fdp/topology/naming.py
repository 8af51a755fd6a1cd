"""Names of edge servers and devices: templates written out, and every name given once.

Names key the streams of randomness, so two nodes of one name would share their noise. The checks work on a document's
plain values, whatever else is wrong with it, so that one reading reports all problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2fdp.config import Document
from h2fdp.errors import Problem
from h2fdp.topology.hierarchy import MOST_TIERS
from h2fdp.topology.network import CLOUD

COUNTER = "{i}"
PARENT = "{parent}"
MOST_EDGES = 100_000
MOST_DEVICES = 10_000_000
Path = tuple[str | int, ...]


def instance(template: str, number: int, parent: str | None = None) -> str:
    """A template's name for one repetition, counted from 1, below the edge server called `parent`.

    >>> instance("hall-{i}", 3)
    'hall-3'
    >>> instance("{parent}-hall-{i}", 3, "north")
    'north-hall-3'
    """
    counted = template.replace(COUNTER, str(number))
    return counted if parent is None else counted.replace(PARENT, parent)


def name_problems(document: Document) -> list[Problem]:
    """Duplicate and reserved names, templates without a counter, and networks beyond our bounds."""
    entries = _entries(document.values(), (), 1)
    problems = _bounds(document, entries)
    return problems or _Register(document).check(entries)


class _Entry:
    """What one item of `edges:` says about names, as far as it can be understood.

    Attributes:
        name: the template of the edge servers' names.
        repeat: how many there are below each node above them; `total` in all.
        devices: the templates of the names of listed devices; None for a default name.
        counted: the number of devices that are not listed, the largest where it is drawn.
        below: the entries below this one.
    """

    def __init__(self, path: Path, edge: dict[str, Any], above: int) -> None:
        self.path = path
        self.name = edge["name"] if isinstance(edge.get("name"), str) else None
        repeat = edge.get("repeat", 1)
        self.repeat = repeat if isinstance(repeat, int) and repeat > 1 else 1
        self.above = above
        self.total = above * self.repeat
        self.below = _entries(edge, path, self.total)
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

    def subtree(self) -> Iterator[_Entry]:
        """This entry and all below it, each before those below it."""
        yield self
        for entry in self.below:
            yield from entry.subtree()


def _entries(values: Any, path: Path, above: int) -> list[_Entry]:
    """The entries of the `edges:` of a mapping, under `above` nodes."""
    edges = values.get("edges") if isinstance(values, dict) else None
    if not isinstance(edges, list):
        return []
    return [_Entry((*path, "edges", at), edge, above) for at, edge in enumerate(edges) if isinstance(edge, dict)]


def _bounds(document: Document, entries: list[_Entry]) -> list[Problem]:
    every = [below for entry in entries for below in entry.subtree()]
    edges = sum(entry.total for entry in every)
    devices = sum(entry.total * entry.size for entry in every)
    where = document.where(("edges",))
    key = document.key(("edges",))
    if edges > MOST_EDGES:
        return [Problem(f"expected at most {MOST_EDGES:,} edge servers, found {edges:,}", where, key)]
    deepest = max((entry.path for entry in every), key=len, default=())
    if len(deepest) > 2 * MOST_TIERS:
        found = f"expected at most {MOST_TIERS} tiers of edge servers, found {len(deepest) // 2}"
        return [Problem(found, document.where(deepest), key)]  # the key of the deepest would fill three lines
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
        only = entries[0] if len(entries) == 1 and entries[0].repeat == 1 and not entries[0].below else None
        for entry in entries:
            self._check_entry(entry, [None], own_edge=entry is only)  # a star's edge server may be the cloud's own
        self._check_default_names()
        return list({(problem.where, problem.key): problem for problem in reversed(self.problems)}.values())[::-1]

    def _check_entry(self, entry: _Entry, parents: Sequence[str | None], own_edge: bool = False) -> None:
        """Take the names of an entry, and of all below it, under each of the nodes above it."""
        names = self._written_out(entry.path, entry.name, entry.repeat, entry.above, parents)
        for name in names:
            self._take(entry.path, name, may_be_cloud=own_edge)
            self.defaults.setdefault(name, entry)
        for index, template in enumerate(entry.devices):
            if template is not None:
                self._check_device((*entry.path, "devices", index), template, entry, names)
        for below in entry.below:
            self._check_entry(below, names)

    def _check_device(self, path: Path, template: str, entry: _Entry, names: Sequence[str]) -> None:
        counted = COUNTER in template and entry.above == 1
        if entry.total > 1 and not counted and PARENT not in template:
            mark = COUNTER if entry.above == 1 else PARENT
            self._needs(path, template, mark, entry.repeat if entry.above == 1 else entry.total)
            names = names[:1]
        numbers = (at % entry.repeat + 1 for at in range(len(names)))
        for number, name in zip(numbers, names, strict=True):
            self._take(path, instance(template, number, name))

    def _written_out(
        self, path: Path, template: str | None, repeat: int, above: int, parents: Sequence[str | None]
    ) -> list[str]:
        """The names that a template of edge servers stands for; one that lacks a mark stands for one."""
        if template is None:
            return []
        missing = [
            (mark, times) for mark, times in ((COUNTER, repeat), (PARENT, above)) if times > 1 and mark not in template
        ]
        for mark, times in missing:
            self._needs(path, template, mark, times)
        if len(path) == 2 and PARENT in template:
            self._tell(path, f"{PARENT} stands for the edge server above, and the cloud alone is above this one")
        if missing:
            return [instance(template, 1, parent) for parent in parents[:1]]
        return [instance(template, number, parent) for parent in parents for number in range(1, repeat + 1)]

    def _needs(self, path: Path, template: str, mark: str, times: int) -> None:
        under = f"under `repeat: {times}`" if mark == COUNTER else f"below {times:,} edge servers"
        example = f"{template}-{mark}" if mark == COUNTER else f"{mark}-{template}"
        self._tell(path, f'expected {mark} in a name {under}, as in "{example}"')

    def _take(self, path: Path, name: str, may_be_cloud: bool = False) -> None:
        if name == CLOUD and not may_be_cloud:
            self._tell(path, f'the name "{CLOUD}" is reserved for the cloud')
        elif name in self.first:
            self._tell(path, f'duplicate name "{name}" ({self._place(self.first[name])})')
        self.first.setdefault(name, path)

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
