"""Numbers that change with the simulated time: grams of CO2 for a kilowatt-hour of a grid, watts that devices harvest.

A trace has lines, each of which holds from its own hour until the next one; after the last, which is as long as the one
before, it begins again. So 24 lines are a day, and a run may last longer. Each of its columns is of a region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ValidationInfo

from h2fdp.config import Document, Section
from h2fdp.config.fields import Expect, adds_keys
from h2fdp.config.own_answers import is_number
from h2fdp.errors import UserError
from h2fdp.network.devices import Floats
from h2fdp.network.links import Lines, lines_of
from h2fdp.network.parts import Part, PartSection

_HOUR, _MOST_LINES, _SECONDS = "hour", 100_000, 3600.0


@dataclass(frozen=True)
class Trace(Part):
    """Numbers by time and region.

    Attributes:
        regions: names of the R columns.
        lines: of the hour, from 0 on and ascending, and the number of each region from then on.
        places: edge server -> its region.
    """

    regions: tuple[str, ...]
    lines: tuple[tuple[float, ...], ...]
    places: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.regions, self.lines))

    def mean(self, names: Sequence[str], began_s: float, seconds: float) -> Floats:
        """(n,) the mean for each of these edge servers from a moment of the simulated clock on, for so long.

        >>> trace = Trace(("de", "fr"), ((0.0, 400.0, 50.0), (12.0, 200.0, 60.0)), {"a": "de", "b": "fr"})
        >>> trace.mean(["a", "b"], began_s=6 * 3600, seconds=12 * 3600).tolist()  # half of it before noon
        [300.0, 55.0]
        >>> trace.mean(["a"], began_s=36 * 3600, seconds=0).tolist()  # the noon of the next day
        [200.0]
        """
        columns = [self.regions.index(self.places[name]) for name in names]
        if seconds <= 0:
            hour = began_s / _SECONDS % self._period
            return np.asarray(self._values[np.searchsorted(self._hours, hour, side="right") - 1][columns])
        return np.asarray((self._until(began_s + seconds) - self._until(began_s)) / (seconds / _SECONDS))[columns]

    def _until(self, at_s: float) -> Floats:
        """(R,) the integral over the hours until this moment."""
        days, hour = divmod(at_s / _SECONDS, self._period)
        line = int(np.searchsorted(self._hours, hour, side="right")) - 1
        whole = self._integrals[line] + self._values[line] * (hour - self._hours[line])
        return np.asarray(days * self._integrals[-1] + whole)

    @cached_property
    def _hours(self) -> Floats:
        return np.array([line[0] for line in self.lines])

    @cached_property
    def _values(self) -> Floats:
        return np.array([line[1:] for line in self.lines])

    @property
    def period_s(self) -> float:
        """Seconds until it begins again."""
        return self._period * _SECONDS

    @cached_property
    def _period(self) -> float:
        return float(self._hours[-1] + (np.diff(self._hours)[-1] if len(self._hours) > 1 else 1.0))

    @cached_property
    def _integrals(self) -> Floats:
        """(lines + 1, R) until the beginning of each line, and of a whole period."""
        parts = np.diff(self._hours, append=self._period)[:, None] * self._values
        return np.concatenate([np.zeros((1, parts.shape[1])), np.cumsum(parts, axis=0)])

    def values(self) -> dict[str, Any]:
        """The section of a topology file that says the same."""
        return {"trace": [[_HOUR, *self.regions], *map(list, self.lines)], "regions": dict(self.places)}

    def check(self, topology: Any, key: str) -> None:
        """Refuse a network with edge servers that are in no region."""
        names = {*topology.access_points[0], *(each.name for each in topology.aggregators)}
        if lost := names - self.places.keys():
            raise UserError(f"expected the region of every edge server, found none of {min(lost)}", key=key)


def _read(value: Any, info: ValidationInfo) -> Trace:
    """The trace of a CSV file, or of a list of its lines.

    Raises:
        ValueError: it cannot be read, or its lines are none of a trace; with the file's line.
    """
    where, rows = lines_of(value, info, _MOST_LINES)
    head = rows[0][1] if rows and isinstance(rows[0][1], list) else []
    regions, before = [str(each) for each in head[1:]], None
    if not regions or head[0] != _HOUR or len({*regions}) < len(regions):
        found = ", ".join(map(str, head)) or "none"
        raise ValueError(f"{where}1: expected the columns {_HOUR} and one for each region, found {found}")
    if len(rows) < 2:
        raise ValueError("expected at least one line below the columns, found none")
    for number, row in rows[1:]:
        good = isinstance(row, list) and len(row) == len(head) and all(map(is_number, row)) and min(row) >= 0
        if not good or (row[0] != 0 if before is None else row[0] <= before):
            hour = "hour 0" if before is None else f"an hour after {before:g}"
            raise ValueError(f"{where}{number}: expected {hour} and {len(regions)} numbers from 0 on, found {row}")
        before = row[0]
    return Trace(tuple(regions), tuple(tuple(map(float, row)) for _, row in rows[1:]))


class TraceSection(PartSection):
    """Numbers by the hour, in a file or a list.

    Attributes:
        trace: a CSV file with the columns hour and one for each region, or a list of such lines. A line holds until the
            next one; after the last it begins again.
        regions: name of an edge server, or a pattern as `eu-*` -> its region; null: the column of its own name, or the
            only one.
    """

    trace: Annotated[Lines, AfterValidator(_read), Expect("the path of a CSV file, or a list of lines")]
    regions: dict[str, str] | None = None

    def drawn(self, key: str, topology: Any, document: Document, seed: int) -> Trace:
        """The trace with the region of each edge server; those above it say where it is if it does not.

        Raises:
            UserError: one whose region is not stated, or not a column.
        """
        trace: Any = self.trace  # was read
        stated, places = self.regions or {}, dict[str, str]()
        for name in (server.name for server in topology.servers()):
            near = topology.path(name)
            named = (region for each in near for mark, region in stated.items() if fnmatchcase(each, mark))
            own = next(named, None) or next((each for each in near if each in trace.regions), "")
            region: str = trace.regions[0] if not own and len(trace.regions) == 1 else own
            if region not in trace.regions:
                columns = ", ".join(trace.regions)
                text = f'expected for "{name}" one of the regions {columns}, found {region or "none"}'
                raise UserError(text, key=f"{key}.regions")
            places[name] = region
        return Trace(trace.regions, trace.lines, places)


@adds_keys("TopologyFile")
class TraceKeys(Section):
    """The keys of a topology file.

    Attributes:
        carbon: grams of CO2 for a kilowatt-hour, by hour and region; null: they are not counted.
        harvest: by what `harvest_w` of devices is multiplied, by hour and region; null is 1.
    """

    carbon: TraceSection | None = None
    harvest: TraceSection | None = None
