"""Rows as JSON lines, synced when they are appended: the ledger, and the controller's decisions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from h2fdp.errors import UserError


class JsonLines:
    """Appends groups of rows; each `append` returns when the rows are on disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def append(self, rows: Iterable[dict[str, Any]]) -> int:
        """Write rows, one JSON object a line, and wait for the disk; how many there were."""
        lines = [json.dumps(row) for row in rows]
        if lines:
            self._file.write(("\n".join(lines) + "\n").encode())
            self._file.flush()
            os.fdatasync(self._file.fileno())
        return len(lines)

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a ledger or of decisions.

    A last line without its end was being written when the writer died: its interval had not started, so nothing of it
    was released.

    Raises:
        UserError: there is no such file, or a line of it is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from None
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError:
            raise UserError("the line is damaged; expected one JSON object", f"{path}:{number}") from None
        yield row
