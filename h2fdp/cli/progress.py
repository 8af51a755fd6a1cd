"""The progress of a run: a live line on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

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


class Target(NamedTuple):
    """The epsilon that the accounts of these observers are held to; None is all that there are."""

    epsilon: float
    observers: Sequence[str] | None = None


def words_of(row: dict[str, Any], costs: bool = True, target: Target | None = None) -> str:
    """What a user wants to know of an interval, as far as it is known.

    Args:
        costs: say what it cost, too.
        target: of the account; the epsilon of its observers is said then, else the largest of all.
    """
    parts = []
    if row.get("accuracy") is not None:
        parts.append(f"accuracy {row['accuracy']:.4f}")
    accounted = {key.removeprefix("epsilon_"): row[key] for key in row if key.startswith("epsilon_")}
    watched = None if target is None else target.observers
    epsilons = [
        epsilon
        for observer, epsilon in accounted.items()
        if epsilon is not None and observer != "claimed" and (watched is None or observer in watched)
    ]
    if epsilons:
        parts.append(f"epsilon {max(epsilons):.3g}" + (f" of {target.epsilon:.3g}" if target else ""))
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
    def __init__(self, total: int, verbose: bool, target: Target | None) -> None:
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
    def __init__(self, bar: Any, task: Any, target: Target | None) -> None:
        self._bar, self._task, self._target = bar, task, target

    def started(self) -> None:
        self._bar.reset(self._task, description="training")

    def update(self, row: dict[str, Any]) -> None:
        wide = self._bar.console.width >= _WIDE
        words = words_of(row, costs=wide, target=self._target)
        self._bar.update(self._task, completed=row["interval"], words=words)


@contextmanager
def progress(total: int, *, quiet: bool, verbose: bool, target: Target | None = None) -> Iterator[Display]:
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
