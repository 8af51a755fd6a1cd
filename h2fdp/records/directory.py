"""A run's directory: made once, locked while it is written, never mixed with another run's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records.checked_json import write_checked_json
from h2fdp.records.line_sums import SUMS
from h2fdp.records.lock import LOCK, in_use, locked, refuse_if_used
from h2fdp.records.summary import SUMMARY


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
        write_checked_json(self.path / SUMMARY, values, indent=2)

    def clear(self) -> None:
        """Remove everything but the lock."""
        for each in self.path.iterdir():
            if each.name == LOCK:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


@contextmanager
def create(path: Path, overwrite: bool = False) -> Iterator[RunDirectory]:
    """A new run directory, locked until the block ends.

    Raises:
        UserError: `path` is a file, is in use, or holds something; with `overwrite` an earlier run gives way, and
            nothing else does.
    """
    where, path = str(path), path.resolve()
    check_room(path, overwrite, where)
    with locked(path, where):
        check_room(path, overwrite, where, ours=True)  # another run may have been here meanwhile
        directory = RunDirectory(path)
        directory.clear()
        yield directory


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
        for folder in (path, directory.checkpoints, path / SUMS):
            for part in folder.glob("*.part"):
                part.unlink()
        yield directory


def state_of(path: Path, summary: Mapping[str, Any]) -> Any:
    """How a run stands: a run that says it is running, and whose process is gone, was killed."""
    killed = summary.get("state") == "running" and not in_use(path)
    return "killed" if killed else summary.get("state")


def check_room(path: Path, overwrite: bool, where: str = "", *, ours: bool = False) -> None:
    """Whether a new run may be made here; nothing is touched.

    Args:
        ours: this process has the directory's lock.

    Raises:
        UserError: as for `create`.
    """
    where = where or str(path)
    if path.exists() and not path.is_dir():
        raise UserError("expected a directory for the run, found a file", where)
    if not ours:
        refuse_if_used(path, where)
    if not path.is_dir() or all(each.name == LOCK for each in path.iterdir()):
        return
    is_run = (path / "config.yaml").exists() and (path / SUMMARY).exists()
    if not overwrite:
        replaced = "add --overwrite (overwrite=True) to replace that run, or " if is_run else ""
        hint = f"{replaced}choose another --out"
        raise UserError(f"the directory is not empty; {hint}", where)
    if not is_run:
        raise UserError("the directory contains something other than a run; --overwrite replaces runs only", where)
