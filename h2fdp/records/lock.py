"""One writer at a time in a directory.

The operating system holds the lock for an open file and frees it when the process ends, however that ends. Nothing is
concluded from the text of the file: the number of a dead process may be another's by now, and a container that starts
again has another name. The text only says who has the lock, for messages.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from h2fdp.errors import UserError

LOCK = ".lock"
_TRIES, _SECONDS_BETWEEN = 5, 0.02  # who asks whether a directory is in use has its lock for an instant
_NONE_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


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
        (path / LOCK).unlink(missing_ok=True)  # while it is held: nobody else's can be removed
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


def refuse_if_used(path: Path, where: str, writer: str = "run") -> None:
    """Raise a UserError if another process is writing to this directory."""
    if in_use(path):
        raise UserError(_taken(path, writer), where)


def _acquired(path: Path) -> int | None:
    """An open file that holds the lock; None where another process has it."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_SECONDS_BETWEEN)
        path.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
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
