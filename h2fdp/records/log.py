"""The log of a run: Python's `logging`, written to `log.jsonl` as one JSON object a line.

Any room logs with `logging.getLogger(__name__)` and `extra=about(node=..., interval=..., ...)`; the event's name is the
message. During a run, its directory has the file, and standard error what the user should know.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records.atomic import json_values
from h2fdp.records.json_lines import complete_sums
from h2fdp.wording import note

_ROOT = logging.getLogger("h2fdp")
_DRIVER = "driver"


def about(*, node: str = _DRIVER, interval: int | None = None, note: str = "", **values: Any) -> dict[str, Any]:
    """The `extra` of a log record: its subject.

    Args:
        node: who speaks: an edge server, a host, or the process that drives the run.
        interval: counted from 1.
        note: a sentence for the user, where the event's name does not say enough.
        values: numbers and words that belong to the event.
    """
    return {"h2fdp": {"node": node, "interval": interval, "note": note, "values": values}}


@contextmanager
def logged_to(path: Path, *, verbose: bool = False) -> Iterator[None]:
    """Append what is logged until the block ends to `path`; warnings, or everything, go to standard error too. At the
    end the lines get their checksums."""
    level = logging.DEBUG if verbose else logging.INFO
    handlers: list[logging.Handler] = [_JsonFile(path), _Terminal(verbose)]
    handlers[0].setLevel(level)
    before, here = _ROOT.level, threading.get_ident()
    for handler in handlers:
        handler.addFilter(lambda record: record.thread == here)  # other threads may have runs of their own
        _ROOT.addHandler(handler)
    _ROOT.setLevel(level)
    try:
        yield
    finally:
        for handler in handlers:
            _ROOT.removeHandler(handler)
            handler.close()
        if not any(isinstance(each, _JsonFile) for each in _ROOT.handlers):
            _ROOT.setLevel(before)
        with suppress(OSError, UserError):  # a full disk, or a damaged log: a run does not end for it
            if path.exists():
                complete_sums(path, path.stat().st_size)


def lost_hosts(path: Path) -> int:
    """The number of lost hosts in the log of a run, with all its resumes."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum('"event": "failure"' in line and f'"node": "{_DRIVER}"' not in line for line in lines)


def _about(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "h2fdp", None) or about()["h2fdp"]
    return fields


class _JsonFile(logging.Handler):
    """Each record a line: time, level, node, interval, event, and what belongs to it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        what = _about(record)
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "node": what["node"],
            "interval": what["interval"],
            "event": record.getMessage(),
            **({"note": what["note"]} if what["note"] else {}),
            **what["values"],
        }
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(json_values(line), default=str) + "\n")
        except OSError:  # a full disk: a run does not end for its log
            return


class _Terminal(logging.Handler):
    """`note: ...` for warnings; with `verbose` a short line for what else happens. Errors are printed elsewhere."""

    def __init__(self, verbose: bool) -> None:
        super().__init__(logging.INFO if verbose else logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        what = _about(record)
        if record.levelno >= logging.ERROR:
            return
        if record.levelno >= logging.WARNING:
            note(what["note"] or record.getMessage())
        else:
            place = [] if what["interval"] is None else [f"interval {what['interval']}"]
            words = [record.getMessage(), *place, *(f"{key} {value}" for key, value in what["values"].items())]
            print(f"[{what['node']}] {', '.join(words)}", file=sys.stderr, flush=True)
