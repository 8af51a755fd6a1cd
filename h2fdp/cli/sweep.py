"""`h2fdp sweep` and `tune`: the grid of a file, the search of a file; how far they are."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.runs import HALF
from h2fdp.cli.terminal import (
    COLUMNS,
    AsJson,
    DataRoot,
    ExperimentPath,
    Interrupt,
    Jobs,
    OverwriteRuns,
    Quiet,
    Settings,
    interruptible,
    live_bars,
    print_facts,
    print_json,
    print_problem,
    print_table,
    print_text,
    say,
    words_of,
)
from h2fdp.wording import SCORES, note

if TYPE_CHECKING:
    from rich.progress import Progress

    from h2fdp.sweeps import Sweep
    from h2fdp.sweeps.pool import WorkOptions
    from h2fdp.sweeps.task import Outcome
    from h2fdp.tuning import Tuned
    from h2fdp.tuning.plan import TunePlan

_MOST_ROWS, _MOST_TRIALS = 60, 10


def sweep_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The sweep's directory.", show_default="sweeps/<name>")] = None,
    data_root: DataRoot = None,
    jobs: Jobs = None,
    overwrite: OverwriteRuns = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values under `sweep:`; repeat the command to continue."""
    from h2fdp.sweeps.api import Sweep
    from h2fdp.sweeps.conduct import conduct
    from h2fdp.sweeps.study import SharedInputs, read_study

    shared = SharedInputs(data_root)
    study = read_study(file, settings or [], shared)
    directory = out or study.directory
    with interruptible() as interrupt, watched(interrupt, jobs, overwrite=overwrite, quiet=quiet) as options:
        outcomes = conduct(study, directory, shared, options)
    sweep = Sweep(directory, tuple(planned.point.name for planned in study.runs))
    finished = len(sweep.runs)
    if as_json:
        print_json(_as_json(sweep, finished))
    else:
        _show(sweep, finished)
    if interrupt.asked() and finished < len(sweep.names):
        print_problem(f"stopped: {finished} of {len(sweep.names)} runs are done; run the same command to continue")
        raise typer.Exit(interrupt.exit_code)
    _exit_for(outcomes, sweep)


def _exit_for(outcomes: dict[str, Outcome], sweep: Sweep) -> None:
    """Report failures, with exit code 2 where all are the user's mistakes, else 1."""
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.error}
    for name, outcome in failed.items():
        reason = outcome.error.strip() if outcome.mistake else outcome.error.strip().rpartition("\n")[2]
        print_problem(f"{name} failed: {reason}")
    if failed:
        print_problem(f"{len(failed)} of {len(sweep.names)} runs failed: see {sweep.directory / 'failures'}")
        raise typer.Exit(2 if all(outcome.mistake for outcome in failed.values()) else 1)


def _as_json(sweep: Sweep, finished: int) -> dict[str, Any]:
    from h2fdp.sweeps.conduct import last_intervals

    return {
        "directory": str(sweep.directory),
        "runs": len(sweep.names),
        "finished": finished,
        "failed": sorted(sweep.failures),
        "last": last_intervals(sweep.summary).to_dict("records"),  # of each combination of values but the seed
    }


def _show(sweep: Sweep, finished: int) -> None:
    """The table that a sweep ends with: what the runs of each combination reached, as `h2fdp table` has it."""
    if finished:
        from h2fdp.reports.paper import paper_table
        from h2fdp.reports.study_numbers import study_numbers

        numbers = study_numbers(sweep.directory)
        rows = paper_table(numbers).texts()
        print_table(rows[:_MOST_ROWS], title=f"means over seeds, {HALF}")
        if numbers.footnote:
            note(numbers.footnote)
        if len(rows) > _MOST_ROWS:
            typer.echo(f"and {len(rows) - _MOST_ROWS} more (summary.parquet has them all)")
        for name, since in _not_finite(sweep):
            typer.echo(f"not finite: the test loss of {name} since interval {since}; its scores say nothing")
    print_facts({"runs": f"{finished} of {len(sweep.names)} done", "sweep directory": sweep.directory})


def _not_finite(sweep: Sweep) -> Iterator[tuple[str, int]]:
    """Runs that ended without a finite test loss, and since which interval."""
    from h2fdp.records import read_summary

    for name in sweep.names:
        summary = read_summary(sweep.directory / "runs" / name) or {}
        if since := summary.get("not_finite_from"):
            yield name, since


def tune_command(
    file: ExperimentPath,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The search's directory.", show_default="tunes/<name>")] = None,
    data_root: DataRoot = None,
    jobs: Jobs = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another search in --out.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search the ranges under `tune:` for the best values; repeat the command to continue."""
    from h2fdp.sweeps.study import SharedInputs
    from h2fdp.tuning.plan import read_plan
    from h2fdp.tuning.results import Tuned
    from h2fdp.tuning.search import conduct

    plan = read_plan(file, settings or [], SharedInputs(data_root))
    directory = out or plan.directory
    for sentence in plan.price.beforehand():
        note(sentence)
    with interruptible() as interrupt, watched(interrupt, jobs, overwrite=overwrite, quiet=quiet) as options:
        searched = conduct(plan, directory, options)
    tuned, finished = Tuned(directory), searched.finished
    if as_json:
        trials = tuned.trials["state"].value_counts().to_dict()
        told = {name: getattr(tuned, name) for name in ("best", "front", "price")}
        print_json({"directory": str(tuned.directory), "finished": finished, "trials": trials, **told})
    else:
        _show_search(tuned, finished, plan)
    for number, crash in searched.crashes.items():
        print_problem(f"trial {number} failed: {crash.reason} (see {tuned.directory / 'failures'})")
    if not finished:
        print_problem("stopped: run the same command to continue")
        raise typer.Exit(1 if searched.crashes else interrupt.exit_code)


def _show_search(tuned: Tuned, finished: bool, plan: TunePlan) -> None:
    """The best trials, the best file, and what the search reveals."""
    measure = f"validation_{plan.measure}"
    trials = tuned.trials.sort_values(measure, ascending=SCORES[plan.measure].falls, kind="stable")
    done = trials[trials["state"] == "done"]
    columns = ["trial", measure, "joules", "seconds", *plan.space.keys]
    rows: list[Any] = done.head(_MOST_TRIALS)[columns].rename(columns={measure: plan.measure}).to_dict("records")
    if rows:
        print_table(rows, title=f"the best trials, by {plan.measure} on validation records")
    counts = ", ".join(f"{count} {state}" for state, count in trials["state"].value_counts().items())
    drawn = "" if plan.price.law is None else f" (the number is {plan.price.drawn_number})"
    facts: dict[str, Any] = {"trials": f"{counts or 'none'}{drawn}"}
    if finished and tuned.best is not None:
        facts |= {"best": f"trial {tuned.best['trial']}", "run it": f"h2fdp run {tuned.file}"}
        if len(tuned.front) > 1:
            facts["front"] = f"{len(tuned.front)} trials, each with its file in {tuned.directory / 'front'}"
    print_facts(facts | {"directory": tuned.directory})
    for sentence in tuned.price if finished else ():
        print_text(f"note: {sentence}")


_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def watched(interrupt: Interrupt, jobs: int | None, *, overwrite: bool, quiet: bool) -> Iterator[WorkOptions]:
    """Options of work that shows its progress on standard error, as results can be piped, and stops on request."""
    from h2fdp.sweeps.pool import WorkOptions

    def options(watcher: SweepProgress) -> WorkOptions:
        # `listen` again once Ray is up, which takes SIGTERM for itself
        return WorkOptions(jobs, overwrite, watcher, interrupt.listen, interrupt.asked)

    if quiet or not sys.stderr.isatty():
        yield options(SweepProgress(None if quiet else say))
        return
    with live_bars(transient=True) as bars:
        yield options(SweepProgress(lambda text: bars.console.print(text, markup=False), bars))


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
        begun = f"{ending(name, outcome, again)}  "
        line = f"{begun}{words_of(self.rows.pop(name), most=COLUMNS - len(begun))}".rstrip()
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
            done = self.finished + self.failed
            room = self._bars.console.width - len(f"runs {'━' * 12} {self.runs}/{self.runs}  00:00:00")
            _, *parts = words.split("  ")  # the bar itself says how many are done
            while parts and len("  ".join(parts)) > room:  # else rich would cut words, and the bar's name
                parts.pop()
            self._bars.update(self._bar, total=self.runs, completed=done, words="  ".join(parts))


def ending(name: str, outcome: Outcome, again: bool) -> str:
    """The end of a run, in a line."""
    if not outcome.error:
        return f"{name}: {outcome.ended_early or outcome.state}"
    reason = outcome.error.strip().rpartition("\n")[2]
    return f"{name}: failed ({reason})" + ("; it will be tried again" if again else "")
