"""The terminal: options that several commands share, tables and JSON, progress, Ctrl-C and SIGTERM.

Tables and progress are plain text where the output goes elsewhere. The first signal stops a run after the interval, the
second at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO

import typer

from h2fdp.wording import COLUMNS, LEFT, Target, advance, progress_bar, word, words_of, wrapped

ExperimentPath = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file (YAML).")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key: training.intervals=20, topology.trust.probability=1."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="H2FDP_DATA or a cache")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs in parallel; with 1, one after another in this process.", show_default="one for each CPU"
    ),
]
OverwriteRuns = Annotated[bool, typer.Option("--overwrite", help="Repeat the runs that have changed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]

_BETWEEN = 2  # spaces between columns
# Between words, and in keys and names; neither in numbers nor after ±.
_BREAK = re.compile(r"(?<=\s)(?<!± )(?=\S)|(?<=\w[.,/-])(?<!\de-)(?=[^\W\d])|(?<=[^\W\d]-)(?<!\de-)(?=\d)")
_FIGURE = r"[-+<>]?(\d[\d,]*\.?\d*(e[-+]?\d+)?|inf|nan)"
_NUMBER = re.compile(rf"{_FIGURE}(( to | ± | of ){_FIGURE})?")  # or a mean with an interval, or how many of how many


def print_json(values: Any) -> None:
    """JSON on standard output."""
    from h2fdp.records.atomic import json_values

    typer.echo(json.dumps(json_values(values), indent=2))


def print_table(
    rows: Sequence[Mapping[str, Any]], title: str | None = None, columns: Sequence[str] | None = None
) -> None:
    """A table of rows with equal keys; texts and headings wrap between words to fit the terminal, numbers never.

    Where that does not fit, half of an interval stands under its mean; else there is a block of lines for each row.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    names = list(columns or (rows[0] if rows else []))
    cells = [[word(row.get(name)) for name in names] for row in rows]
    console = Console(highlight=False)
    if title:
        print_text(title)  # as wide as the terminal, however narrow the table is
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    columns_of = {name: [row[place] for row in cells] for place, name in enumerate(names)}
    numeric = {name: any(map(_NUMBER.fullmatch, column)) for name, column in columns_of.items()}
    narrow = {name: max(map(_unbroken, [name, *column])) for name, column in columns_of.items()}
    widths = {name: max(map(len, [name, *column])) for name, column in columns_of.items()}
    room = console.width - _BETWEEN * (len(names) - 1)
    if sum(narrow.values()) > room:
        stacked = {name: "\n".join([name, *each]).replace(" ±", "\n±") for name, each in columns_of.items()}
        narrow = {name: max(map(_unbroken, lines.split("\n"))) for name, lines in stacked.items()}
    if sum(narrow.values()) > room:
        typer.echo(("\n" if title else "") + "\n\n".join(_block(names, row) for row in cells))
        return
    while sum(widths.values()) > room:
        widths[max((name for name in names if widths[name] > narrow[name]), key=widths.__getitem__)] -= 1
    for name in names:
        table.add_column(_folded(name, widths[name]), justify="right" if numeric[name] else "left", overflow="fold")
    for row in cells:
        table.add_row(*(escape(_folded(*each)) for each in zip(row, widths.values(), strict=True)))  # no markup
    console.print(table)


def _unbroken(text: str) -> int:
    """Letters that stay in one line: all of a number, the longest word of a text."""
    return len(text) if _NUMBER.fullmatch(text) else max(len(each.rstrip()) for each in _BREAK.split(text))


def _folded(text: str, width: int) -> str:
    """The text in lines of this width, but for long words; keys and names break after points, commas and slashes."""
    lines = [""]
    for each in [text] if len(text) <= width else _BREAK.split(text):
        if len((lines[-1] + each).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += each
    return "\n".join(map(str.rstrip, lines))


def _block(names: Sequence[str], cells: Sequence[str]) -> str:
    """A row as lines: what, and its value."""
    margin = max(map(len, names)) + 2
    return "\n".join(f"{name.ljust(margin)}{cell}" for name, cell in zip(names, cells, strict=True))


def print_facts(facts: Mapping[str, Any]) -> None:
    """Two columns: what, and its value; a path stays on one line, so that it can be copied."""
    margin = max(map(len, facts)) + 2
    width = max(shutil.get_terminal_size().columns - margin, 20)
    for name, value in facts.items():
        lines = [str(value)] if isinstance(value, Path) else textwrap.wrap(word(value), width) or [""]
        typer.echo(name.ljust(margin) + ("\n" + " " * margin).join(lines))


def print_text(text: str) -> None:
    """A sentence, wrapped within the terminal's width."""
    typer.echo(wrapped(text))


def fitted(line: str, stream: TextIO, *whole: str) -> str:
    """A line for a pipe, which `grep` reads; wrapped for a terminal, where parts stay `whole`."""
    return wrapped(line, *whole, indent="    ") if stream.isatty() else line


def print_problem(text: str, *whole: str) -> None:
    """A mistake or a failure on standard error; see `fitted`. Lines of a traceback, which are indented, stay."""
    for line in text.split("\n"):
        say(line if line[:1].isspace() else fitted(line, sys.stderr, *whole))


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
        """The exit code of a process that stopped for the signal."""
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
        print_problem(f"stopped at once; {go_on}")
        raise typer.Exit(interrupt.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LINES = 10  # plain lines for a whole run


@contextmanager
def progress(
    total: int, *, quiet: bool, verbose: bool, target: Target | None = None
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that shows a row of a run's metrics on standard error, for results are piped: as a line or a log.

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
                room = None if verbose else COLUMNS - len(begun) - len(left)
                say(f"{begun}{words_of(row, target=target, most=room)}{left}")

        yield line
    else:
        with progress_bar(total, True) as bar:

            def show(row: dict[str, Any]) -> None:
                words = words_of(row, target=target, most=shutil.get_terminal_size().columns - LEFT)
                advance(bar, row["interval"], words)

            yield show


def say(text: str) -> None:
    """A line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)
