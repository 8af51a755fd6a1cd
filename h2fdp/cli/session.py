"""Runs watched from the terminal: Ctrl-C and SIGTERM, and progress as live bars, or a few plain lines elsewhere.

The first signal stops the run after the interval, the second at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from h2fdp.sweeps.pool import WorkOptions
    from h2fdp.sweeps.task import Outcome

Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs in parallel; with 1, one after another in this process.", show_default="one for each CPU"
    ),
]
OverwriteRuns = Annotated[bool, typer.Option("--overwrite", help="Repeat the runs that have changed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether a run was asked to stop, and the exit code that follows from it.

    Ctrl-C is 130, SIGTERM (a batch system's or a container's) 143: 128 and the signal's number, as shells have it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def asked(self) -> bool:
        """Whether the run is to stop after this interval."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a process that stopped for it."""
        return 128 + (self.signal or signal.SIGINT)

    def listen(self) -> None:
        """Take the signals; again after libraries that take them for themselves were started."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        again = "Ctrl-C again" if number == signal.SIGINT else "SIGTERM again"
        with suppress(OSError):  # sys.stderr refuses to be entered by a signal that comes while it writes
            os.write(2, f"stopping after this interval ({again} to stop at once)\n".encode())


@contextmanager
def interruptible(go_on: str = "run the same command to continue") -> Iterator[Interrupt]:
    """Signals ask the block to stop; a second one ends the command, and says how to go on."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    interrupt = Interrupt()
    interrupt.listen()
    try:
        yield interrupt
    except KeyboardInterrupt:
        print(f"stopped at once; {go_on}", file=sys.stderr)
        raise typer.Exit(interrupt.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def watched(
    interrupt: Interrupt, data_root: Path | None, jobs: int | None, *, overwrite: bool, quiet: bool
) -> Iterator[WorkOptions]:
    """Options of work that shows its progress on standard error, as results can be piped, and stops on request."""
    from h2fdp.sweeps.pool import WorkOptions

    def options(watcher: SweepProgress) -> WorkOptions:
        # `listen` again once Ray is up, which takes SIGTERM for itself
        return WorkOptions(data_root, jobs, overwrite, watcher, interrupt.listen, interrupt.asked)

    if quiet or not sys.stderr.isatty():
        yield options(SweepProgress(None if quiet else _say))
        return
    with _bars(transient=True) as bars:
        yield options(SweepProgress(lambda text: bars.console.print(text, markup=False), bars))


_LINES = 10  # plain lines for a whole run
_COLUMNS = 80  # of a plain line
_WIDE = 110  # columns of a terminal that holds the live line with energy and simulated time
_SECONDS_BETWEEN_LINES = 30.0


class Target(NamedTuple):
    """The epsilon that the accounts of these observers are held to; None is all that there are."""

    epsilon: float
    observers: Sequence[str] | None = None


def words_of(row: dict[str, Any], costs: bool = True, target: Target | None = None, most: int | None = None) -> str:
    """What a user wants to know of an interval, as far as it is known.

    Args:
        costs: say what it cost, too.
        most: columns; what it cost is left out where it takes more.
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
    while most is not None and len(parts) > 2 and len("  ".join(parts)) > most:
        parts.pop()
    return "  ".join(parts)


@contextmanager
def progress(
    total: int, *, quiet: bool, verbose: bool, target: Target | None = None
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What shows a row of a run's metrics, as it suits where the output goes: standard error, for results are piped.

    Args:
        total: intervals of the run.
        target: see `words_of`.
    """
    if quiet:
        yield lambda row: None
    elif verbose or not sys.stderr.isatty():
        every = 1 if verbose else max(1, total // _LINES)
        ends: list[float] = []  # of intervals: what hosts take to start says nothing of the time left

        def line(row: dict[str, Any]) -> None:
            done = row["interval"]
            ends.append(time.monotonic())
            left = ""
            if len(ends) > 1:
                left = f"  {(ends[-1] - ends[0]) / (len(ends) - 1) * (total - done):.0f} s left"
            if done % every == 0 or done in (1, total):
                begun = f"interval {done}/{total}  "
                room = None if verbose else _COLUMNS - len(begun) - len(left)
                _say(f"{begun}{words_of(row, target=target, most=room)}{left}")

        yield line
    else:
        with _bars() as bars:
            task = bars.add_task("training", total=total, words="")

            def show(row: dict[str, Any]) -> None:
                words = words_of(row, costs=bars.console.width >= _WIDE, target=target)
                bars.update(task, completed=row["interval"], words=words)

            yield show


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bars(*, transient: bool = False) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # a name is no markup
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True, highlight=False), transient=transient)


class SweepProgress:
    """Counts what a sweep has done and what is left; a line for each run that ends, and one now and then until then.

    Args:
        say: takes the lines; null for none.
        bars: where a bar for all runs follows them.
    """

    def __init__(self, say: Callable[[str], None] | None = None, bars: Progress | None = None) -> None:
        self.runs = self.finished = self.failed = 0
        self.rows: dict[str, dict[str, Any]] = {}  # the newest row of each running run
        self._early: Counter[str] = Counter()  # why runs ended before their last interval
        self._write, self._bars, self._last = say, bars, time.monotonic()
        self._bar = None if bars is None else bars.add_task("runs", total=None, words="starting")

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self.runs, self.finished = runs, finished
        if finished:
            self._say(f"{finished} of {runs} runs are finished already")

    def started(self, name: str, done: int, intervals: int) -> None:
        self.rows[name] = {}

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row
        words = f"{self.words()}  {name} {row['interval']}  {words_of(row)}"
        self._show(words)
        if self._bars is None and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._say(words)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        line = f"{ending(name, outcome, again)}  {words_of(self.rows.pop(name))}".rstrip()
        self.finished += outcome.finished or bool(outcome.ended_early)
        self.failed += bool(outcome.error) and not again
        if outcome.ended_early:
            self._early[outcome.ended_early] += 1
        self._say(f"{line}\n  {self.words()}")
        self._show(self.words())

    def words(self) -> str:
        """All of it in a line."""
        parts = [f"{self.finished}/{self.runs} runs done", *(f"{count} {why}" for why, count in self._early.items())]
        if self.rows:
            parts.append(f"{len(self.rows)} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return "  ".join(parts)

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        if self._write is not None:
            self._write(text)

    def _show(self, words: str) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, total=self.runs, completed=self.finished + self.failed, words=words)


def ending(name: str, outcome: Outcome, again: bool) -> str:
    """How a run ended, in a line."""
    if not outcome.error:
        return f"{name}: {outcome.ended_early or outcome.state}"
    reason = outcome.error.strip().rpartition("\n")[2]
    return f"{name}: failed ({reason})" + ("; it will be tried again" if again else "")
