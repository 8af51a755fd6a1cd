"""Tables and JSON on the terminal; a pipe gets plain text of the same content."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer


def print_json(values: Any) -> None:
    """JSON on standard output."""
    from h2fdp.records.json_lines import json_values

    typer.echo(json.dumps(json_values(values), indent=2))


def print_table(
    rows: Sequence[Mapping[str, Any]], title: str | None = None, columns: Sequence[str] | None = None
) -> None:
    """A table of rows with equal keys; long cells wrap within the terminal's width."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    names = list(columns or (rows[0] if rows else []))
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, show_edge=False)
    for name in names:
        numeric = any(isinstance(row.get(name), (int, float)) and not isinstance(row.get(name), bool) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_words(row.get(name))) for name in names))  # a user's text is no markup
    Console(highlight=False).print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Two columns: what, and its value; a path stays on one line, so that it can be copied."""
    margin = max(map(len, facts)) + 2
    width = max(shutil.get_terminal_size().columns - margin, 20)
    for name, value in facts.items():
        lines = [str(value)] if isinstance(value, Path) else textwrap.wrap(_words(value), width) or [""]
        typer.echo(name.ljust(margin) + ("\n" + " " * margin).join(lines))


def print_text(text: str) -> None:
    """A sentence, wrapped within the terminal's width."""
    typer.echo("\n".join(textwrap.wrap(text, shutil.get_terminal_size().columns, break_long_words=False)))


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "edge server"), counted(2000, "device")
    ('1 edge server', '2,000 devices')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _words(value: Any) -> str:
    """A value in few characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
