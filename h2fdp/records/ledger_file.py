"""The ledger on disk: the rows of an interval are synced before the interval starts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any


class LedgerFile:
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

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
