"""A run's directory: made once, locked while it is written, never mixed with another run's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.json_lines import json_values
from h2fdp.records.summary import SUMMARY

_LOCK = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    """Paths and small writers of one run's directory."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration, every default written out."""
        return self.path / "config.yaml"

    @property
    def topology(self) -> Path:
        """The topology as drawn."""
        return self.path / "topology.yaml"

    @property
    def metrics(self) -> Path:
        """A row for each interval."""
        return self.path / "metrics.parquet"

    @property
    def devices(self) -> Path:
        """Final accuracy and loss of each device."""
        return self.path / "devices.parquet"

    @property
    def ledger(self) -> Path:
        """Every release, one JSON object a line."""
        return self.path / "privacy.jsonl"

    @property
    def decisions(self) -> Path:
        """The controller's decisions and its reasons, one JSON object a line; empty under a fixed schedule."""
        return self.path / "control.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the newest checkpoints."""
        return self.path / "checkpoint"

    @property
    def noise_key(self) -> Path:
        """The secret key of the noise, until the run is complete; see `run.noise_key`."""
        return self.checkpoints / "noise-key"

    @property
    def log(self) -> Path:
        """What happened, one JSON object a line."""
        return self.path / "log.jsonl"

    @property
    def model(self) -> Path:
        """The model's state dict."""
        return self.path / "model.pt"

    def write_summary(self, values: dict[str, Any]) -> None:
        """Replace `summary.json`."""
        write_text(self.path / SUMMARY, json.dumps(json_values(values), indent=2) + "\n")


@contextmanager
def create(path: Path, overwrite: bool = False) -> Iterator[RunDirectory]:
    """A new run directory, locked until the block ends.

    Raises:
        UserError: `path` is a file, is in use, or holds something; with `overwrite` an earlier run gives way, and
            nothing else does.
    """
    where, path = str(path), path.resolve()
    if path.exists() and not path.is_dir():
        raise UserError("expected a directory for the run, found a file", where)
    if path.is_dir() and any(each.name != _LOCK for each in path.iterdir()):
        _make_room(path, overwrite)
    with locked(path, where):
        yield RunDirectory(path)


@contextmanager
def reopen(path: Path) -> Iterator[RunDirectory]:
    """The directory of a run that ended early, locked until the block ends; half-written files are gone.

    Raises:
        UserError: `path` is no run directory, or is in use.
    """
    where, path = str(path), path.resolve()
    directory = RunDirectory(path)
    if not directory.config.is_file() or not directory.topology.is_file():
        raise UserError("not a run directory (expected config.yaml and topology.yaml)", where)
    with locked(path, where):
        for part in [*path.glob("*.part"), *directory.checkpoints.glob("*.part")]:
            part.unlink()
        yield directory


def in_use(path: Path) -> bool:
    """Whether a process is writing to this run directory now; a lock ends with its process, however that ends."""
    if not (path / _LOCK).exists():
        return False
    try:
        with FileLock(path / _LOCK, timeout=0):
            return False
    except (Timeout, OSError):
        return True


def state_of(path: Path, summary: Mapping[str, Any]) -> Any:
    """How a run stands: a run that says it is running, and whose process is gone, was killed."""
    killed = summary.get("state") == "running" and not in_use(path)
    return "killed" if killed else summary.get("state")


@contextmanager
def locked(path: Path, where: str, writer: str = "run") -> Iterator[None]:
    """The directory, made where it is not there, for one writer at a time.

    Raises:
        UserError: another `writer` has it; it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / _LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise UserError(f"another {writer} is writing to this directory", where) from None
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where) from None
    try:
        yield
    finally:
        lock.release()
        (path / _LOCK).unlink(missing_ok=True)


def _make_room(path: Path, overwrite: bool) -> None:
    where = str(path)
    is_run = (path / "config.yaml").exists() and (path / SUMMARY).exists()
    if not overwrite:
        hint = "add --overwrite to replace that run, or choose another --out" if is_run else "choose another --out"
        raise UserError(f"the directory is not empty; {hint}", where)
    if not is_run:
        raise UserError("the directory contains something other than a run; --overwrite replaces runs only", where)
    try:
        with FileLock(path / _LOCK, timeout=0):
            pass
    except Timeout:
        raise UserError("another run is writing to this directory", where) from None
    shutil.rmtree(path)
