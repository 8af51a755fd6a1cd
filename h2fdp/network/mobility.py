"""Devices that change their edge server between intervals: what a topology file says, and where each is at which time.

A network in which devices move is simulated as one that stands still: every edge server has a row for each device that
is ever there, and of all rows of a device at most one takes part in an interval. `Visits` knows which rows are one
device's. Where a device is, is public.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from h2fdp.config.fields import LARGEST_INTEGER
from h2fdp.errors import NETWORK_REFUSALS, Problem, UserError, refused
from h2fdp.network.devices import Column, Integers
from h2fdp.network.links import Wire
from h2fdp.network.network import COLUMNS, Subnet

NOWHERE = "-"
_DISTANCE: Column = COLUMNS["distance_m"]


class Line(NamedTuple):
    """A line of a trace: from this interval on, until its next line, a device is at an edge server, or nowhere.

    Attributes:
        interval: from 1.
        device, edge: their names; None is nowhere.
        distance_m: to there; None is the device's own.
    """

    interval: int
    device: str
    edge: str | None
    distance_m: float | None = None


@dataclass(frozen=True)
class Mobility:
    """The movement of a network's devices; see `mobility:` of a topology file.

    Attributes:
        trace: where each device is from when on; before its first line it is where the topology file has it.
        handover: the wire over which an edge server sends a message of a model's size to the one to which a device
            goes; None for no message.
        places: file and line of each line of the trace, for messages; empty where it is from no file.

    >>> Mobility(trace=[(3, "car-1", "b"), (5, "car-1", None)]).trace[0]
    Line(interval=3, device='car-1', edge='b', distance_m=None)
    """

    trace: Sequence[Line | tuple[Any, ...]] = ()
    handover: Wire | None = None
    places: Sequence[str] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.handover, Wire | None) or (self.handover and not self.handover.plain):
            raise UserError(
                "expected a Wire of rate and power alone, over which messages leave one after another",
                key="mobility.handover",
            )
        moves, problems = [], []
        for at, values in enumerate(self.trace):
            try:
                moves.append(_line(values))
            except ValueError as error:
                problems.append(self.problem(at, str(error)))
        if problems:
            raise UserError(problems)
        object.__setattr__(self, "trace", tuple(moves))

    def problem(self, at: int, text: str) -> Problem:
        """One with a line of the trace."""
        return Problem(text, self.places[at] if self.places else "", f"mobility.trace.{at + 1}")

    def values(self) -> dict[str, Any]:
        """The mobility in the words of a topology file, whose trace is inside of it."""
        return {"trace": [[*each[:3], *([] if each.distance_m is None else [each.distance_m])] for each in self.lines]}

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the trace."""
        return tuple(Line(*each) for each in self.trace)


def _line(values: Any) -> Line:
    """A line from what a file or a user has.

    Raises:
        ValueError: it is none; with what was expected.
    """
    expected = "expected [interval, device, edge, distance_m], the last of which may be left out"
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence) or len(values) not in (3, 4):
        raise ValueError(f"{expected}; found {values!r}")
    interval, device, edge, *distance = values
    if isinstance(interval, bool) or not isinstance(interval, int) or not 1 <= interval <= LARGEST_INTEGER:
        raise ValueError(f"expected the number of an interval, from 1; found {interval!r}")
    if not isinstance(device, str) or not (edge is None or isinstance(edge, str)):
        raise ValueError(f"expected the names of a device and an edge server; found {device!r}, {edge!r}")
    far = distance[0] if distance else None
    number = isinstance(far, (int, float)) and not isinstance(far, bool)
    if far is not None and not (number and _DISTANCE.allows(np.array([float(far)]))):
        raise ValueError(f"expected {_DISTANCE.expected} as distance_m; found {far!r}")
    return Line(interval, device, None if edge in (NOWHERE, "") else edge, None if far is None else float(far))


@dataclass(frozen=True, eq=False)
class Visits:
    """The rows of a network that belong to one device, and the intervals in which each takes part.

    Attributes:
        device: (rows,) number of the device of each row, in the order of the topology file.
        home: (I,) row of each device at the edge server that the file has it at.
        begins: (lines,) the interval from 0 in which each line of the trace begins, ascending.
        moves: (lines, 2) device, and the row that is its from then on; -1 is nowhere.
    """

    device: Integers
    home: Integers
    begins: Integers
    moves: Integers

    def rows_at(self, interval: int) -> Integers:
        """(I,) the row of each device in an interval counted from 0; -1 where it is nowhere.

        No device has two, which is what makes one account of all its rows sound.
        """
        return self._after(self.moves[: int(np.searchsorted(self.begins, interval, side="right"))])

    def _after(self, moves: Integers) -> Integers:
        """(I,) the row of each device after these."""
        devices, rows = moves.T
        at = self.home.copy()
        at[devices] = rows  # of several of a device the last one stays
        return at

    def there(self, interval: int) -> np.ndarray:
        """(rows,) whether the row is its device's in this interval."""
        present, at = np.zeros(len(self.device), dtype=bool), self.rows_at(interval)
        present[at[at >= 0]] = True
        return present

    def moved(self, interval: int) -> Integers:
        """(n, 2) of each device that appears at another row in an interval from 0: its last row and this one."""
        begin, end = np.searchsorted(self.begins, [interval, interval + 1]) if interval else (0, 0)
        last = self._after(self.moves[:begin][self.moves[:begin, 1] >= 0])
        devices, rows = self.moves[begin:end].T
        moves: Integers = np.stack([last[devices], rows], axis=1)[(rows >= 0) & (rows != last[devices])]
        return moves


def expanded(subnets: Sequence[Subnet], mobility: Mobility, columns: Iterable[str]) -> tuple[list[Subnet], Visits]:
    """The subnets with a row for each device that is ever there, at each distance; rows of the file's devices first.

    Args:
        columns: names of the columns that the network reads.

    Raises:
        UserError: devices or edge servers that the network does not have; two places at once.
    """
    numbers = {subnet.name: number for number, subnet in enumerate(subnets)}
    places = [(number, row) for number, subnet in enumerate(subnets) for row in range(subnet.size)]
    names = {subnets[number].device_name(row): device for device, (number, row) in enumerate(places)}
    _check(mobility, numbers, names)
    own = [float(subnets[number].column("distance_m")[row]) for number, row in places]
    visitors: list[dict[tuple[int, float], int]] = [{} for _ in subnets]  # (device, distance) -> row of the subnet
    for device, (number, row) in enumerate(places):
        visitors[number][device, own[device]] = row
    order = sorted(mobility.lines, key=lambda line: line.interval)
    for line in order:
        if line.edge is not None:
            rows, key = visitors[numbers[line.edge]], _key(line, names, own)
            rows.setdefault(key, len(rows))
    firsts = np.cumsum([0, *map(len, visitors)])
    moves = [
        (
            names[line.device],
            -1
            if line.edge is None
            else int(firsts[numbers[line.edge]]) + visitors[numbers[line.edge]][_key(line, names, own)],
        )
        for line in order
    ]
    visits = Visits(
        np.array([device for rows in visitors for device, _ in rows], dtype=np.int64),
        np.array([firsts[number] + row for number, row in places], dtype=np.int64),
        np.array([line.interval - 1 for line in order], dtype=np.int64),
        np.array(moves, dtype=np.int64).reshape(-1, 2),
    )
    return [
        _with_visitors(subnet, [*rows][subnet.size :], subnets, places, columns)
        for subnet, rows in zip(subnets, visitors, strict=True)
    ], visits


def _key(line: Line, names: Mapping[str, int], own: Sequence[float]) -> tuple[int, float]:
    device = names[line.device]
    return device, own[device] if line.distance_m is None else line.distance_m


def _check(mobility: Mobility, numbers: Mapping[str, int], names: Mapping[str, int]) -> None:
    problems, taken = [], set()
    for at, line in enumerate(mobility.lines):
        if line.device not in names:
            problems.append(mobility.problem(at, f'expected the name of a device, found "{line.device}"'))
        if line.edge is not None and line.edge not in numbers:
            text = f'expected the name of an edge server that has devices, or {NOWHERE}; found "{line.edge}"'
            problems.append(mobility.problem(at, text))
        if (line.interval, line.device) in taken:
            text = f"expected one place for {line.device} in interval {line.interval}, found a second"
            problems.append(mobility.problem(at, text))
        taken.add((line.interval, line.device))
    if problems:
        raise UserError(problems)


def _with_visitors(
    subnet: Subnet,
    visitors: Sequence[tuple[int, float]],
    subnets: Sequence[Subnet],
    places: Sequence[tuple[int, int]],
    columns: Iterable[str],
) -> Subnet:
    """A subnet with further rows, called after their devices, with their numbers but for the distance."""
    if not visitors:
        return subnet
    homes = [(subnets[places[device][0]], places[device][1]) for device, _ in visitors]
    numbers = {name: [home.column(name)[row] for home, row in homes] for name in columns}
    numbers["distance_m"] = [distance for _, distance in visitors]
    return replace(
        subnet,
        columns={name: np.concatenate([subnet.column(name), more]) for name, more in numbers.items()},
        names=(*subnet.device_names(), *(home.device_name(row) for home, row in homes)),
        rules={},
    )


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Any, network: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that exclude devices that change their edge server, or have no account for them."""
    if topology.mobility is None:
        return
    method, training, calibration = experiment.method, experiment.training, experiment.privacy.calibration
    placement, compression, memory = method.privacy, experiment.compression, method.local_objective.memory
    star, private, accounted = method.topology == "star", placement.private, placement.name in ("hierarchical", "local")
    trusts = {each.name: each.trust for each in topology.subnets} | {"the cloud": topology.cloud_trust}
    summing = [name for name, trust in trusts.items() if private and accounted and placement.sees(trust) == "sum"]
    shape, part = "a star" if star else f"{topology.depth} tiers", training.participation
    yield from refused(
        "devices change their edge server (mobility in the topology)",
        ("topology", star or topology.depth > 1, "one tier of edge servers", shape),
        ("method.schedule", method.schedule.name != "fixed", "fixed", method.schedule.name),
        ("training.participation", part != 1, "1, with a trace for who takes part", f"{part:g}"),
        ("training.device_turns", training.turns != 1, "1", training.device_turns),
        ("method.objective", memory is not None, "one without a memory, which stays behind", memory),
        (
            "training.optimizer.state",
            getattr(training.optimizer, "keeps", False),
            "fresh, as state stays behind",
            "kept",
        ),
        ("compression.device", bool(compression.of_devices), "null", "a compressor"),
        ("compression.edge", bool(compression.of_edges), "null", "a compressor"),
        ("runtime.placement", experiment.runtime.placement == "entity", "packed or subnet", "entity"),
        ("privacy.calibration", private and calibration != "accounted", "accounted", calibration),
        ("method.privacy", private and not accounted, "hierarchical or local", placement.name),
        ("topology", bool(summing), "no secure sums", f"those of {summing[0]}" if summing else ""),
    )
