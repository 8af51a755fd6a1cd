"""Progress of what Python started: a bar in a notebook, one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from h2fdp.run.recorders import OnInterval, RunCallbacks
from h2fdp.wording import word

_SECONDS_BETWEEN = 0.2


class PythonProgress:
    """Shows how far something is, at most five times a second.

    Args:
        total: steps in all.
        show: null for where it is of use: a notebook, a terminal.
    """

    def __init__(self, total: int, show: bool | None = None) -> None:
        self._total, self._shown = max(1, total), 0.0
        self._write = _writer(show)
        self._began = time.monotonic()

    def update(self, done: int, text: str) -> None:
        """So many steps are done."""
        now = time.monotonic()
        if self._write is None or (now - self._shown < _SECONDS_BETWEEN and done < self._total):
            return
        self._shown = now
        left = (now - self._began) / max(done, 1) * (self._total - done)
        self._write(done / self._total, f"{done}/{self._total}  {text}  {left:.0f} s left")

    def close(self) -> None:
        """The last line stays."""
        if self._write is not None and self._shown:
            self._write(None, "")

    def interval(self, row: dict[str, Any]) -> None:
        """The newest row of a run's metrics."""
        accuracy = row.get("accuracy")
        self.update(int(row["interval"]), "" if accuracy is None else f"accuracy {word(float(accuracy))}")


@contextmanager
def shown(total: int, progress: bool | None, on_interval: OnInterval | None) -> Iterator[RunCallbacks]:
    """What watches a run from Python: its progress, and the user's own function."""
    display = PythonProgress(total, progress)

    def both(row: dict[str, Any]) -> None:
        display.interval(row)
        if on_interval is not None:
            on_interval(row)

    try:
        yield RunCallbacks(on_interval=both)
    finally:
        display.close()


def _writer(show: bool | None) -> Callable[[float | None, str], None] | None:
    """What shows a share and a text, the share null at the end."""
    if show is False:
        return None
    handle = _notebook_handle()
    if handle is not None:

        def in_notebook(share: float | None, text: str) -> None:
            if share is not None:
                handle(f'<progress value="{share:.4f}" max="1"></progress> {text}')

        return in_notebook
    if show is None and not sys.stderr.isatty():
        return None

    def on_terminal(share: float | None, text: str) -> None:
        end = "\n" if share is None else ""
        print(f"\r\x1b[K{text}" if share is not None else "", end=end, file=sys.stderr, flush=True)

    return on_terminal


def _notebook_handle() -> Callable[[str], None] | None:
    """Replaces a piece of HTML in the output of a notebook's cell; null outside of notebooks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    library: Any = import_module("IPython.display")  # in a notebook it is there
    handle = library.display(library.HTML(""), display_id=True)
    return lambda text: handle.update(library.HTML(text))
