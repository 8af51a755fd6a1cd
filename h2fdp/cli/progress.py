"""The progress of a run: a live line on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

_LINES = 10  # plain lines for a whole run
_WIDE = 110  # columns of a terminal that holds the live line with energy and simulated time


class Display(Protocol):
    """Shows the progress of a run."""

    def started(self) -> None:
        """The hosts are up; time left counts from here."""
        ...

    def update(self, row: dict[str, Any]) -> None:
        """A row of the metrics."""
        ...


def words_of(row: dict[str, Any], costs: bool = True, target: str = "") -> str:
    """What a user wants to know of an interval, as far as it is known.

    Args:
        costs: say what it cost, too.
        target: of the account, in words: stated beside the epsilon, which is a coarser accountant's.
    """
    parts = []
    if row.get("accuracy") is not None:
        parts.append(f"accuracy {row['accuracy']:.4f}")
    epsilons = [
        row[key] for key in row if key.startswith("epsilon_") and key != "epsilon_claimed" and row[key] is not None
    ]
    if epsilons:
        beside = f"; {target}" if target else ""
        parts.append(f"epsilon at most {max(epsilons):.3g} (rdp{beside})")  # `pld` takes longer than many an interval
    if costs and row.get("energy_j") is not None:
        parts.append(f"{row['energy_j']:.3g} J")
    if costs and row.get("clock_s") is not None:
        parts.append(f"{row['clock_s']:.3g} s simulated")
    return "  ".join(parts)


class _Silent:
    def started(self) -> None:
        return

    def update(self, row: dict[str, Any]) -> None:
        return


class _Lines:
    def __init__(self, total: int, verbose: bool, target: str) -> None:
        self._total, self._target = total, target
        self._every = 1 if verbose else max(1, total // _LINES)
        self._start = time.monotonic()

    def started(self) -> None:
        self._start = time.monotonic()

    def update(self, row: dict[str, Any]) -> None:
        done = row["interval"]
        if done % self._every == 0 or done in (1, self._total):
            left = (time.monotonic() - self._start) / done * (self._total - done)
            words = words_of(row, target=self._target)
            print(f"interval {done}/{self._total}  {words}  {left:.0f} s left", file=sys.stderr, flush=True)


class _Live:
    def __init__(self, bar: Any, task: Any, target: str) -> None:
        self._bar, self._task, self._target = bar, task, target

    def started(self) -> None:
        self._bar.reset(self._task, description="training")

    def update(self, row: dict[str, Any]) -> None:
        wide = self._bar.console.width >= _WIDE
        words = words_of(row, costs=wide, target=self._target if wide else "")
        self._bar.update(self._task, completed=row["interval"], words=words)


@contextmanager
def progress(total: int, *, quiet: bool, verbose: bool, target: str = "") -> Iterator[Display]:
    """The display that suits where the output goes; on standard error, so that results can be piped.

    Args:
        target: see `words_of`.
    """
    if quiet:
        yield _Silent()
    elif verbose or not sys.stderr.isatty():
        yield _Lines(total, verbose, target)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True, highlight=False)) as bar:
            yield _Live(bar, bar.add_task("starting", total=total, words=""), target)
