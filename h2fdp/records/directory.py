"""A run's directory: made once, one writer at a time, never mixed with another run's; its summary.

The operating system holds the lock for an open file and frees it when the process ends, however that ends. Nothing is
concluded from the text of the file: the number of a dead process may be another's by now, and a container that starts
again has another name. The text only says who has the lock, for messages.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.errors import UserError, no_directory
from h2fdp.records.atomic import read_checked_json, write_checked_json
from h2fdp.records.json_lines import SUMS
from h2fdp.wording import SCORES

SUMMARY = "summary.json"
SCHEMA_VERSION = 2  # 1 had no checksums
LAST = 20  # intervals whose mean score is reported with the last one: noisy curves swing
_LIBRARIES = ("h2fdp", "numpy", "torch", "torchvision", "ray", "scikit-learn", "scipy", "pyarrow")
PACKAGE = Path(__file__).parents[1]  # where this process has h2fdp's own files
LOCK = ".lock"
_TRIES, _SECONDS_BETWEEN = 5, 0.02  # who asks whether a directory is in use has its lock for an instant
_NONE_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def locked(path: Path, where: str, writer: str = "run") -> Iterator[None]:
    """The directory, made where it is not there, for one writer at a time; if it is empty at the end, it goes again.

    Raises:
        UserError: another `writer` has it; it cannot be made.
    """
    try:
        descriptor = _acquired(path)
        if descriptor is None:
            raise UserError(_taken(path, writer), where)
        _sign(descriptor)
    except OSError as error:
        raise UserError(_why_not(error), where) from None
    try:
        yield
    finally:
        (path / LOCK).unlink(missing_ok=True)  # while this process has the lock, so that no other one's is removed
        with suppress(OSError):
            path.rmdir()
        os.close(descriptor)


def in_use(path: Path) -> bool:
    """Whether a process is writing to this directory now."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquired(path: Path) -> int | None:
    """An open file that holds the lock; None where another process has it."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_SECONDS_BETWEEN)
        path.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # who had the lock has removed the empty directory meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path / LOCK):
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at this path: who had the lock before may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    who = {"process": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(who).encode())


def _taken(path: Path, writer: str) -> str:
    """The message about a directory that another process has; who that is where the file says it."""
    text = f"another {writer} is writing to this directory"
    try:
        who = json.loads((path / LOCK).read_text())
        return f"{text} (process {who['process']} on {who['host']}, since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return text


def _why_not(error: OSError) -> str:
    if error.errno in _NONE_HERE:
        return "the file system has no file locks, so two runs could write here at once; expected one that has"
    return f"cannot be written: {error.strerror or error}"


class Inside:
    """The place of a file in a directory: an attribute of a class that has the directory's `path`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, directory: Any, owner: type) -> Path:
        path: Path = directory.path / self._name
        return path


@dataclass(frozen=True)
class RunDirectory:
    """Paths and small writers of one run's directory."""

    path: Path
    config = Inside("config.yaml")  # resolved, every default written out
    topology = Inside("topology.yaml")  # as drawn
    metrics = Inside("metrics.parquet")  # a row for each interval
    devices = Inside("devices.parquet")  # final accuracy and loss of each
    ledger = Inside("privacy.jsonl")  # every release, one JSON object a line
    decisions = Inside("control.jsonl")  # of the controller, with its reasons; empty under a fixed schedule
    checkpoints = Inside("checkpoint")  # the folder of the newest ones
    noise_key = Inside("checkpoint/noise-key")  # secret, until the run is complete; see `records.noise_key`
    outcomes = Inside("checkpoint/outcomes")  # a digest of the model after each interval; see `records.checkpoint`
    log = Inside("log.jsonl")  # what happened, one JSON object a line
    model = Inside("model.pt")  # the state dict

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
        raise no_directory("not a run directory (expected config.yaml and topology.yaml)", where)
    for each in path.rglob("*"):
        if each.is_symlink():
            text = f"is a link to {os.readlink(each)}, and a run writes to its own files alone; put that in its place"
            raise UserError(text, str(each))
    with locked(path, where):
        for folder in (path, directory.checkpoints, path / SUMS):
            for part in folder.glob("*.part"):
                part.unlink()
        yield directory


def state_of(path: Path, summary: Mapping[str, Any]) -> Any:
    """The state of a run: a run that says it is running, and whose process is gone, was killed."""
    killed = summary.get("state") == "running" and not in_use(path)
    return "killed" if killed else summary.get("state")


@contextmanager
def new_directory(out: Path | None, name: str, overwrite: bool) -> Iterator[Path]:
    """The directory of a run of this name: `out`, or `runs/<name>-<time>`, with a number where that is taken. The
    latter is made at once, so that no other run takes it, and is removed if it stays empty.

    Raises:
        UserError: as for `create`.
    """
    if out is not None:
        check_room(out, overwrite)
        yield out
        return
    stem = out = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in count(2):
        try:
            out.mkdir(parents=True)
            break
        except FileExistsError:
            out = stem.with_name(f"{stem.name}-{number}")
        except OSError as error:
            raise UserError(_why_not(error), str(out)) from None
    try:
        yield out
    finally:
        with suppress(OSError):
            out.rmdir()


def has_content(path: Path, writer: str, where: str) -> bool:
    """Whether there is anything in a directory but its lock.

    Raises:
        UserError: a file is in place of the directory of a `writer`.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"expected a directory for the {writer}, found a file", where)
    return path.is_dir() and any(each.name != LOCK for each in path.iterdir())


def check_room(path: Path, overwrite: bool, where: str = "", *, ours: bool = False) -> None:
    """Whether a new run may be made here; nothing is touched.

    Args:
        ours: this process has the directory's lock.

    Raises:
        UserError: as for `create`.
    """
    where = where or str(path)
    taken = has_content(path, "run", where)
    if not ours and in_use(path):
        raise UserError(_taken(path, "run"), where)
    if not taken:
        return
    is_run = (path / "config.yaml").exists() and (path / SUMMARY).exists()
    if not overwrite:
        replaced = "add --overwrite (overwrite=True) to replace that run, or " if is_run else ""
        hint = f"{replaced}choose another --out"
        raise UserError(f"the directory is not empty; {hint}", where)
    if not is_run:
        raise UserError("the directory contains something other than a run; --overwrite replaces runs only", where)


def versions(libraries: Iterable[str] = _LIBRARIES) -> dict[str, str]:
    """Versions of Python, the machine and these libraries: by default all that a run may have met."""
    by_name = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    return by_name | {library: _version(library) for library in libraries}


@cache
def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def read_summary(run: Path) -> dict[str, Any] | None:
    """The summary of a run directory; None where there is none.

    Raises:
        UserError: it is damaged, or was changed after the run wrote it.
    """
    return read_checked_json(run / SUMMARY)


def worst_epsilons(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Observer -> its epsilon of the worst device by `pld`, of a run with an account; null where that is infinite."""
    worst = (summary.get("privacy") or {}).get("worst") or {}
    return {observer: numbers.get("pld") for observer, numbers in worst.items()}


def reached(metrics: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The progress of a run that still runs, or was killed, by these columns; its summary is of when it began."""
    columns = {name: [value for value in column if value is not None] for name, column in metrics.items()}
    last = {name: column[-1] for name, column in columns.items() if column}
    return {"intervals": last.pop("interval", 0), **last, **scored(metrics), "wall_s": sum(columns.get("wall_s", ()))}


def scored(metrics: Mapping[str, Sequence[Any]]) -> dict[str, float | None]:
    """The scores in these columns of all intervals: of each the last, the best, and the mean of the last 20; None
    without a value.

    >>> scored({"rmse": [3.0, None, 2.0], "accuracy": [None, None, None]})["best_rmse"]
    2.0
    """
    found: dict[str, float | None] = {}
    for name in ("accuracy", *(each for each in SCORES if each in metrics and each != "accuracy")):
        column = metrics.get(name, ())
        known = [value for value in column if value is not None]
        recent = [value for value in column[-LAST:] if value is not None]
        best = max(known, key=SCORES[name].signed, default=None)
        found |= {name: known[-1] if known else None, f"best_{name}": best}
        found[f"{name}_mean_last_{LAST}"] = float(np.mean(recent)) if recent else None
    return found


@contextmanager
def full_disk_reported(directory: RunDirectory) -> Iterator[None]:
    """A full disk is the user's to mend, and the run continues after it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        text = f"the disk is full ({error.strerror}); make room, then continue with: h2fdp resume {directory.path}"
        raise UserError(text, str(error.filename or directory.path)) from None
