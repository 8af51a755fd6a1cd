"""Tables and JSON on the terminal; a pipe gets plain text of the same content."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer


def print_json(values: Any) -> None:
    """JSON with NaN and infinity as null, which JSON does not have."""
    typer.echo(json.dumps(_finite(values), indent=2))


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


def _words(value: Any) -> str:
    """A value in few characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _finite(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _finite(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
