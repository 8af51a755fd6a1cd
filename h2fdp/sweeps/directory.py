"""A sweep's directory: its study, the state of its runs, their directories, and the tables."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records import in_use, read_summary
from h2fdp.records.checked_json import read_checked_json, write_checked_json
from h2fdp.run.state import FINISHED

SCHEMA_VERSION = 2  # 1 had no checksum
WAITING = "waiting"
DAMAGED = "damaged"
_SECONDS_BETWEEN_WRITES = 1.0


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of one sweep's directory."""

    path: Path

    @property
    def study(self) -> Path:
        """The study, its settings written in."""
        return self.path / "study.yaml"

    @property
    def state(self) -> Path:
        """The points of the grid, what their runs were made of, and how these stand."""
        return self.path / "sweep.json"

    @property
    def table(self) -> Path:
        """A row for each run and interval."""
        return self.path / "sweep.parquet"

    @property
    def summary(self) -> Path:
        """Means over seeds: a row for each combination of the other values and each interval."""
        return self.path / "summary.parquet"

    def run(self, name: str) -> Path:
        """The run directory of a point."""
        return self.path / "runs" / name

    def failure(self, name: str) -> Path:
        """What a point's run failed with, twice."""
        return self.path / "failures" / f"{name}.txt"

    def state_of(self, name: str) -> str:
        """How a point's run stands, by its own directory; one that says it is running was killed, one whose summary
        is damaged is `damaged`."""
        try:
            state = (read_summary(self.run(name)) or {}).get("state", WAITING)
        except UserError:
            return DAMAGED
        return "killed" if state == "running" else str(state)

    def intervals_of(self, name: str) -> int:
        """How many intervals a point's run has recorded, by its summary."""
        if self.state_of(name) == DAMAGED:
            return 0
        return int((read_summary(self.run(name)) or {}).get("intervals", 0))

    def finished(self, names: Iterable[str]) -> list[str]:
        """The points whose runs have nothing left to do."""
        return [name for name in names if self.state_of(name) in FINISHED]

    def is_begun(self, name: str) -> bool:
        """Whether a point's run can be continued, or has a damaged summary, which says nothing about its releases."""
        run = self.run(name)
        has_inputs = (run / "config.yaml").is_file() and (run / "topology.yaml").is_file()
        return has_inputs and self.state_of(name) != WAITING


def remove_run(path: Path) -> None:
    """Remove what is there of a run.

    Raises:
        UserError: a process is writing to it.
    """
    if in_use(path):
        raise UserError("another run is writing to this directory", str(path))
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class SweepEntry:
    """What `sweep.json` says about a point.

    Attributes:
        values: swept key -> value.
        digest: of the configuration that its run has, if there is one.
        code: of the code that its run is made by.
    """

    values: dict[str, Any]
    digest: str
    code: str
    state: str = WAITING
    error: str = ""


@dataclass
class SweepStates:
    """`sweep.json` during a sweep: written at most once a second, and at the end.

    Attributes:
        entries: point -> what is known, those of earlier grids too as long as they have a run.
    """

    directory: SweepDirectory
    name: str
    keys: tuple[str, ...]
    entries: dict[str, SweepEntry]
    _written: float = field(default=0.0, init=False)

    def note(self, name: str, state: str, error: str = "") -> None:
        """A run has another state."""
        before = self.entries[name]
        self.entries[name] = SweepEntry(before.values, before.digest, before.code, state, error)
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write it now."""
        values = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "keys": list(self.keys),
            "points": {name: vars(entry) for name, entry in self.entries.items()},
        }
        write_checked_json(self.directory.state, values, indent=1)
        self._written = time.monotonic()


def read_entries(directory: SweepDirectory) -> dict[str, SweepEntry]:
    """The points of an earlier start of the sweep; none where the directory is new.

    Raises:
        UserError: the directory holds something else, or the file is damaged.
    """
    where = str(directory.path)
    if directory.path.exists() and not directory.path.is_dir():
        raise UserError("expected a directory for the sweep, found a file", where)
    if not directory.state.exists():
        if directory.path.is_dir() and any(each.name != ".lock" for each in directory.path.iterdir()):
            raise UserError("the directory contains something other than a sweep; choose another --out", where)
        return {}
    try:
        values = read_checked_json(directory.state) or {}
        return {name: _entry(entry) for name, entry in values["points"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"damaged ({error!r}); expected the file that a sweep wrote, or another --out"
        raise UserError(text, str(directory.state)) from None


def _entry(values: Mapping[str, Any]) -> SweepEntry:
    return SweepEntry(dict(values["values"]), str(values["digest"]), str(values["code"]), str(values["state"]))
