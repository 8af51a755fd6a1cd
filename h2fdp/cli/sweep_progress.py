"""The progress of a sweep: one display of all runs on a terminal, a line for each run that ends elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from h2fdp.cli.progress import words_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from h2fdp.sweeps.pool import SweepWatcher
    from h2fdp.sweeps.task import Outcome

_MOST_SHOWN = 8  # running runs on the display
_SECONDS_BETWEEN_LINES = 30.0
_LONG = 180.0  # seconds from which on minutes say enough


@dataclass(frozen=True)
class RunProgress:
    """A run under way: intervals that are done, how many there are at most, the newest row of its metrics."""

    done: int
    intervals: int
    row: dict[str, Any] = field(default_factory=dict)


class SweepCounts:
    """Counts what a sweep has done and what is left.

    How long the rest takes is only known once a run has ended: from the seconds that such runs took for an interval,
    preparations included, side by side as many as there have been.

    Attributes:
        running: the runs under way, by name.
    """

    def __init__(self) -> None:
        self.runs = self.finished = self.failed = 0
        self.running: dict[str, RunProgress] = {}
        self._early: Counter[str] = Counter()  # of those that are finished, why they ended before their last interval
        self._waiting: float | None = None  # intervals of runs that have not started; None where that is not known
        self._done = 0  # intervals since the first run started
        self._starts: dict[str, tuple[float, int]] = {}  # of each run: when, and with how many intervals to go
        self._seconds = self._intervals = 0.0  # that runs took which have ended, and had to go
        self._most_running = 1

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self.runs, self.finished, self._waiting = runs, finished, intervals or None

    def started(self, name: str, done: int, intervals: int) -> None:
        self.running[name] = RunProgress(done, intervals)
        self._starts[name] = time.monotonic(), intervals - done
        self._wait(done - intervals)
        self._most_running = max(self._most_running, len(self.running))

    def interval(self, name: str, row: dict[str, Any]) -> None:
        run = self.running[name]
        self._done += row["interval"] - run.done
        self.running[name] = RunProgress(row["interval"], run.intervals, row)

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        run, (start, to_go) = self.running.pop(name), self._starts[name]
        if outcome.finished or outcome.ended_early:
            self.finished += 1
            self._done += 0 if outcome.ended_early else run.intervals - run.done  # that were not seen
            self._seconds, self._intervals = self._seconds + time.monotonic() - start, self._intervals + to_go
            if outcome.ended_early:
                self._early[outcome.ended_early] += 1
        elif again:
            self._wait(run.intervals)  # it may have to start over
        self.failed += bool(outcome.error) and not again

    def _wait(self, intervals: int) -> None:
        self._waiting = None if self._waiting is None else max(0.0, self._waiting + intervals)

    def _seconds_left(self) -> float:
        waiting = self._waiting
        if waiting is None:  # as many each as the runs that have started
            mean = sum(to_go for _, to_go in self._starts.values()) / len(self._starts)
            waiting = mean * (self.runs - self.finished - self.failed - len(self.running))
        left = waiting + sum(run.intervals - run.done for run in self.running.values())
        return left * self._seconds / self._intervals / self._most_running

    def words(self) -> str:
        """All of it in a line."""
        parts = [f"{self.finished}/{self.runs} runs done"]
        parts += [f"{count} {why}" for why, count in self._early.items()]
        if self.running:
            parts.append(f"{len(self.running)} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self._done > 0:
            since = min(start for start, _ in self._starts.values())
            parts.append(f"{self._done / max(time.monotonic() - since, 1e-9):.3g} intervals/s")
        if self._intervals > 0 and self.finished + self.failed < self.runs:
            left = self._seconds_left()
            parts.append(f"about {left:.0f} s left" if left < _LONG else f"about {left / 60:.0f} min left")
        return "  ".join(parts)


class _Lines:
    """A line for each run that ends, and one now and then while none does."""

    def __init__(self) -> None:
        self._tally = SweepCounts()
        self._last = time.monotonic()

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self._tally.begin(runs, finished, intervals)
        if finished:
            self._say(f"{finished} of {runs} runs are finished already")

    def started(self, name: str, done: int, intervals: int) -> None:
        self._tally.started(name, done, intervals)

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self._tally.interval(name, row)
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._say(self._tally.words())

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        row = self._tally.running[name].row
        self._tally.ended(name, outcome, again)
        self._say(f"{ending(name, outcome, again)}  {words_of(row)}".rstrip())
        self._say(f"  {self._tally.words()}")

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def ending(name: str, outcome: Outcome, again: bool) -> str:
    """How a run ended, in a line."""
    if not outcome.error:
        return f"{name}: {outcome.ended_early or outcome.state}"
    reason = outcome.error.strip().rpartition("\n")[2]
    return f"{name}: failed ({reason})" + ("; it will be tried again" if again else "")


class _Live:
    """A bar of intervals, and a line for each running run."""

    def __init__(self, display: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._display = display
        self._tally = SweepCounts()
        self._bar = Progress(BarColumn(bar_width=20), TextColumn("{task.description}"), console=display.console)
        self._task = self._bar.add_task("starting", total=None)

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self._tally.begin(runs, finished, intervals)
        self._show()

    def started(self, name: str, done: int, intervals: int) -> None:
        self._tally.started(name, done, intervals)
        self._show()

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self._tally.interval(name, row)
        self._show()

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        self._tally.ended(name, outcome, again)
        if outcome.error:
            self._display.console.print(ending(name, outcome, again), markup=False)
        self._show()

    def _show(self) -> None:
        tally = self._tally
        share = sum(run.done / run.intervals for run in tally.running.values())
        ended = tally.finished + tally.failed
        self._bar.update(self._task, total=tally.runs, completed=ended + share, description=tally.words())
        self._display.update(self._picture())

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [
            Text(f"  {name}  {run.done}/{run.intervals}  {words_of(run.row)}", overflow="ellipsis", no_wrap=True)
            for name, run in list(self._tally.running.items())[:_MOST_SHOWN]
        ]
        more = len(self._tally.running) - len(lines)
        return Group(self._bar, *lines, *([Text(f"  and {more} more")] if more > 0 else []))


@contextmanager
def sweep_progress(*, quiet: bool) -> Iterator[SweepWatcher]:
    """The display that suits where the output goes; on standard error, so that results can be piped."""
    if quiet:
        from h2fdp.sweeps.pool import SilentWatcher

        yield SilentWatcher()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True, highlight=False), refresh_per_second=4, transient=True) as display:
            yield _Live(display)
