"""The progress of a run, or of many: live bars on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from h2fdp.sweeps.pool import SweepWatcher
    from h2fdp.sweeps.task import Outcome

_LINES = 10  # plain lines for a whole run
_WIDE = 110  # columns of a terminal that holds the live line with energy and simulated time
_MOST_SHOWN = 8  # running runs on the display
_SECONDS_BETWEEN_LINES = 30.0


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
                _say(f"interval {done}/{total}  {words_of(row, target=target)}{left}")

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


class SweepCounts:
    """Counts what a sweep has done and what is left; shows nothing."""

    def __init__(self) -> None:
        self.runs = self.finished = self.failed = 0
        self.rows: dict[str, dict[str, Any]] = {}  # the newest row of each running run
        self._early: Counter[str] = Counter()  # why runs ended before their last interval

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        self.runs, self.finished = runs, finished

    def started(self, name: str, done: int, intervals: int) -> None:
        self.rows[name] = {}

    def interval(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        del self.rows[name]
        self.finished += outcome.finished or bool(outcome.ended_early)
        self.failed += bool(outcome.error) and not again
        if outcome.ended_early:
            self._early[outcome.ended_early] += 1

    def words(self) -> str:
        """All of it in a line."""
        parts = [f"{self.finished}/{self.runs} runs done", *(f"{count} {why}" for why, count in self._early.items())]
        if self.rows:
            parts.append(f"{len(self.rows)} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return "  ".join(parts)


class _SweepLines(SweepCounts):
    """A line for each run that ends, and one now and then while none does."""

    _last = 0.0

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        super().begin(runs, finished, intervals)
        self._last = time.monotonic()
        if finished:
            _say(f"{finished} of {runs} runs are finished already")

    def interval(self, name: str, row: dict[str, Any]) -> None:
        super().interval(name, row)
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            _say(f"{self.words()}  {name} {row['interval']}  {words_of(row)}")

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        words = words_of(self.rows[name])
        super().ended(name, outcome, again)
        self._last = time.monotonic()
        _say(f"{ending(name, outcome, again)}  {words}".rstrip())
        _say(f"  {self.words()}")


def ending(name: str, outcome: Outcome, again: bool) -> str:
    """How a run ended, in a line."""
    if not outcome.error:
        return f"{name}: {outcome.ended_early or outcome.state}"
    reason = outcome.error.strip().rpartition("\n")[2]
    return f"{name}: failed ({reason})" + ("; it will be tried again" if again else "")


class _SweepLive(SweepCounts):
    """A bar of all runs, and one of each of the first running runs."""

    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self._bars = bars
        self._all = bars.add_task("runs", total=None, words="starting")
        self._tasks: dict[str, TaskID] = {}

    def begin(self, runs: int, finished: int, intervals: int) -> None:
        super().begin(runs, finished, intervals)
        self._show()

    def started(self, name: str, done: int, intervals: int) -> None:
        super().started(name, done, intervals)
        shown = len(self._tasks) < _MOST_SHOWN
        self._tasks[name] = self._bars.add_task(name, total=intervals, completed=done, words="", visible=shown)
        self._show()

    def interval(self, name: str, row: dict[str, Any]) -> None:
        super().interval(name, row)
        self._bars.update(self._tasks[name], completed=row["interval"], words=words_of(row))

    def ended(self, name: str, outcome: Outcome, again: bool) -> None:
        super().ended(name, outcome, again)
        self._bars.remove_task(self._tasks.pop(name))
        if outcome.error:
            self._bars.console.print(ending(name, outcome, again), markup=False)
        self._show()

    def _show(self) -> None:
        self._bars.update(self._all, total=self.runs, completed=self.finished + self.failed, words=self.words())


@contextmanager
def sweep_progress(*, quiet: bool) -> Iterator[SweepWatcher]:
    """The display of many runs that suits where the output goes; on standard error, so that results can be piped."""
    if quiet:
        yield SweepCounts()
    elif not sys.stderr.isatty():
        yield _SweepLines()
    else:
        with _bars(transient=True) as bars:
            yield _SweepLive(bars)
