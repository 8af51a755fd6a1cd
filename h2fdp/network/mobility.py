"""Devices that change their edge server between intervals: what a topology file says, and where each is at which time.

A network in which devices move is simulated as one that stands still, with rows for `Visits` (see `Membership`). Where
a device is, is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from h2fdp.config import Document, Section
from h2fdp.config.fields import LARGEST_INTEGER, Expect, adds_keys
from h2fdp.config.parsing import plain_scalar, read_csv
from h2fdp.errors import NETWORK_REFUSALS, Problem, UserError, refused
from h2fdp.network.devices import Column, Floats, Integers, Membership
from h2fdp.network.links import Lines, Wire, WireSection, link_values
from h2fdp.network.network import COLUMNS, Subnet
from h2fdp.network.parts import Part, PartSection
from h2fdp.wording import counted, note

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
class Mobility(Part):
    """The movement of a network's devices; see `mobility:` of a topology file.

    Attributes:
        trace: where each device is from when on; before its first line it is where the topology file has it.
        handover: the wire over which an edge server sends a message of a model's size to the one to which a device
            goes; None for no message.
        places: file and line of each line of the trace, for messages; empty where it is from no file.

    >>> Mobility(trace=[(3, "car-1", "b"), (5, "car-1", None)]).trace[0]
    Line(interval=3, device='car-1', edge='b', distance_m=None)
    """

    note: ClassVar[str] = (
        "mobility: where each device is in which interval is public; the account of a device covers all its edge "
        "servers, and the observer edge is all of them together, as if they colluded; single-edge is the worst of them "
        "by itself, which receives all global models"
    )

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
        """The section of a topology file that says the same, with the trace inside of it."""
        wire = {} if self.handover is None else {"handover": link_values(self.handover)}
        lines = [[*each[:3], *([] if each.distance_m is None else [each.distance_m])] for each in self.lines]
        return {"trace": lines, **wire}

    def check(self, topology: Any, key: str) -> None:
        """Refuse a trace of other nodes."""
        self.with_rows(topology)

    def in_star(self) -> None:
        """None: all devices stay below the cloud."""

    def with_rows(self, topology: Any) -> Any:
        """The network in which every edge server has a row for each device that is ever there, at each distance.

        >>> from h2fdp.network import Topology
        >>> moving = replace(Topology.regular(edges=2, devices=1), mobility=Mobility([(3, "edge-1/1", "edge-2", 20.0)]))
        >>> rows = moving.with_rows()
        >>> rows.sizes.tolist(), rows.membership.device.tolist(), rows.subnets[1].device_names()
        ([1, 2], [0, 1, 0], ['edge-2/1', 'edge-1/1'])
        """
        return topology if topology.membership is not None else _expanded(topology, self)

    def words(self) -> str:
        """The number of devices that move, and when."""
        if not self.lines:
            return "no device moves, an empty trace"
        moving, begins = {line.device for line in self.lines}, [line.interval for line in self.lines]
        verb = "moves" if len(moving) == 1 else "move"
        return f"{counted(len(moving), 'device')} {verb}, a trace from interval {min(begins)} to {max(begins)}"

    def idle(self, intervals: int) -> str:
        """A trace whose first line comes after the run."""
        first = min((line.interval for line in self.lines), default=0)
        begins = f"; its trace begins with interval {first}" if first else ""
        still = f"no device moves in the {intervals} intervals of this run{begins}"
        return "" if 0 < first <= intervals else still

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
class Visits(Membership):
    """The rows of devices that follow a trace.

    Attributes:
        begins: (lines,) the interval from 0 in which each line of the trace begins, ascending.
        moves: (lines, 2) device, and the row that is its from then on; -1 is nowhere.
        handover: see `Mobility`.
    """

    begins: Integers
    moves: Integers
    handover: Wire | None = None

    def rows_at(self, interval: int) -> Integers:
        """(I,) the row of each device in an interval counted from 0; -1 where it is nowhere."""
        return self._after(self.moves[: int(np.searchsorted(self.begins, interval, side="right"))])

    def _after(self, moves: Integers) -> Integers:
        """(I,) the row of each device after these."""
        devices, rows = moves.T
        at = self.home.copy()
        at[devices] = rows  # of several of a device the last one stays
        return at

    def there(self, interval: int) -> NDArray[np.bool_]:
        """(rows,) whether the row is its device's, see `Membership`."""
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

    def costs(self, interval: int, edges: NDArray[Any], bits: float) -> dict[str, float]:
        """The costs of handovers: each edge server sends one after another, all at the same time."""
        if (wire := self.handover) is None:
            return {}
        left, entered = edges[self.moved(interval)].T
        messages = np.bincount(left[left != entered], minlength=1)
        seconds, count = wire.seconds(bits), int(messages.sum())
        return {
            "energy_j": wire.joules(bits) * count,
            "delay_s": seconds * count,
            "clock_s": seconds * int(messages.max()),
            "bytes": count * bits / 8,
        }


_TRACE = ("interval", "device", "edge", "distance_m")
MOST_LINES = 200_000


def read_trace(path: Path) -> Mobility:
    """The trace of a CSV file with the columns interval, device, edge and, if any, distance_m.

    Raises:
        UserError: with every line that is none.
    """
    header, rows = read_csv(path, MOST_LINES, note)
    if tuple(header) not in (_TRACE, _TRACE[:3]):
        text = f"expected the columns {', '.join(_TRACE)}, the last of which may be left out"
        raise UserError(f"{text}; found {', '.join(header) or 'nothing'}", f"{path}:1")
    moves = [(plain_scalar(row[0]), *row[1:3], *map(plain_scalar, row[3:])) for _, row in rows]  # texts are refused
    return Mobility(moves, places=[f"{path}:{number}" for number, _ in rows])


class MobilitySection(PartSection):
    """Devices that change their edge server between intervals.

    Attributes:
        trace: a CSV file with the columns interval, device, edge and, if any, distance_m, or a list of such lines: from
            that interval on, until its next line, the device is there. Edge `-` is nowhere.
        handover: the wire over which the edge server that a device leaves sends a message of a model's size to its next
            one; null for none.
    """

    moves: ClassVar[bool] = True
    gone: ClassVar[Mapping[str, str]] = {
        "waypoint": "python -m experiments.parts.waypoint in a clone writes such a walk as a trace: {trace: walk.csv}",
        "stay": "state where devices are, as python -m experiments.parts.waypoint in a clone does: {trace: walk.csv}",
    }

    trace: Annotated[Lines, Expect("the path of a CSV file, or a list of [interval, device, edge, distance_m]")]
    handover: WireSection | None = None

    def drawn(self, key: str, topology: Any, document: Document, seed: int) -> Mobility:
        """The movement; a trace in a file of its own is read, from where the topology is."""
        handover = None if self.handover is None else self.handover.wire()
        if isinstance(self.trace, str):
            return replace(read_trace(document.folder / self.trace), handover=handover)
        places = [document.where((key, "trace", at)) for at in range(len(self.trace))]
        return Mobility(self.trace, handover, places)


@adds_keys("TopologyFile")
class MobilityKey(Section):
    """The key of a topology file.

    Attributes:
        mobility: how devices change their edge server between intervals; null: they do not.
    """

    mobility: MobilitySection | None = None


def _expanded(topology: Any, mobility: Mobility) -> Any:
    """The network with a row for each device that is ever at an edge server, at each distance; those of the file first.

    Raises:
        UserError: devices or edge servers that the network does not have; two places at once.
    """
    table, names = topology.table, topology.device_names()
    devices, numbers = ({name: at for at, name in enumerate(each)} for each in (names, topology.access_points[0]))
    _check(mobility, numbers, devices)
    own, order = table.columns["distance_m"].tolist(), sorted(mobility.lines, key=lambda line: line.interval)
    rows: list[dict[tuple[int, float], int]] = [{} for _ in numbers]  # (device, distance) -> row of the subnet

    def row(number: int, device: int, distance: float | None = None) -> int:
        return rows[number].setdefault((device, own[device] if distance is None else distance), len(rows[number]))

    for device, number in enumerate(table.home.tolist()):
        row(number, device)
    moves = []  # device, subnet and row there
    for line in order:
        device, to = devices[line.device], None if line.edge is None else numbers[line.edge]
        moves.append((device, to, 0 if to is None else row(to, device, line.distance_m)))
    firsts = np.cumsum([0, *map(len, rows)])
    visits = Visits(
        np.array([device for each in rows for device, _ in each], dtype=np.int64),
        firsts[table.home] + table.row,
        np.array([line.interval - 1 for line in order], dtype=np.int64),
        np.array([(device, -1 if to is None else firsts[to] + at) for device, to, at in moves], dtype=np.int64).reshape(
            -1, 2
        ),
        mobility.handover,
    )
    subnets = [
        _with_visitors(subnet, [*each][subnet.size :], names, table.columns)
        for subnet, each in zip(topology.subnets, rows, strict=True)
    ]
    return replace(topology, subnets=tuple(subnets), membership=visits)


def _with_visitors(
    subnet: Subnet, visitors: Sequence[tuple[int, float]], names: Sequence[str], columns: Mapping[str, Floats]
) -> Subnet:
    """A subnet with further rows, called after their devices, with their numbers but for the distance."""
    if not visitors:
        return subnet
    devices, distances = map(list, zip(*visitors, strict=True))
    numbers = {name: each[devices] for name, each in columns.items()} | {"distance_m": distances}
    return replace(
        subnet,
        columns={name: np.concatenate([subnet.column(name), more]) for name, more in numbers.items()},
        names=(*subnet.device_names(), *(names[device] for device in devices)),
        rules={},
    )


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


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Any, network: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that exclude devices that change their edge server, or have no account for them."""
    if topology.mobility is None:
        return
    method, training, calibration = experiment.method, experiment.training, experiment.privacy.calibration
    placement, memory = method.privacy, method.local_objective.memory
    handover = topology.mobility.handover
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
        ("runtime.placement", experiment.runtime.placement == "entity", "packed or subnet", "entity"),
        ("privacy.calibration", private and calibration != "accounted", "accounted", calibration),
        ("method.privacy", private and not accounted, "hierarchical or local", placement.name),
        ("topology", bool(summing), "no secure sums", f"those of {summing[0]}" if summing else ""),
    )
    grid = topology.carbon is not None and handover is not None
    yield from refused("no grid is known of wires between edge servers", ("topology", grid, "no handover", "one"))
