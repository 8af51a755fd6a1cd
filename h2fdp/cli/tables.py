"""Tables and JSON on the terminal, plain text of the same content in a pipe; options that several commands share."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from h2fdp.wording import word, wrapped

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


_BETWEEN = 2  # spaces between columns
_LONGEST_WORD = 16
_FIGURE = r"[-+<>]?(\d[\d,]*\.?\d*(e[-+]?\d+)?|inf|nan)"
_NUMBER = re.compile(rf"{_FIGURE}(( to | ± | of ){_FIGURE})?")  # or a mean with an interval, or how many of how many


def print_json(values: Any) -> None:
    """JSON on standard output."""
    from h2fdp.records.atomic import json_values

    typer.echo(json.dumps(json_values(values), indent=2))


def print_table(
    rows: Sequence[Mapping[str, Any]], title: str | None = None, columns: Sequence[str] | None = None
) -> None:
    """A table of rows with equal keys; words and headings wrap within the terminal's width, numbers never.

    Where not even that fits, there is a block of lines for each row.
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
    least = sum(narrow.values()) + _BETWEEN * (len(names) - 1)
    wide = least + sum(max(len(name) - narrow[name], 0) for name in names if numeric[name]) > console.width
    for name in names:
        head = "\n".join(textwrap.wrap(name, narrow[name])) if wide and numeric[name] else name  # else it is cut
        table.add_column(head, justify="right" if numeric[name] else "left", overflow="fold", no_wrap=numeric[name])
    if least > console.width:
        typer.echo(("\n" if title else "") + "\n\n".join(_block(names, row) for row in cells))
        return
    for row in cells:
        table.add_row(*map(escape, row))  # no markup
    console.print(table)


def _unbroken(text: str) -> int:
    """Letters that stay in one line: all of a number, the longest word of a text, up to a limit."""
    return len(text) if _NUMBER.fullmatch(text) else min(max(map(len, text.split()), default=0), _LONGEST_WORD)


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


def print_text(text: str, *, error: bool = False) -> None:
    """A sentence, wrapped within the terminal's width; on standard error if wanted."""
    typer.echo(wrapped(text), err=error)
