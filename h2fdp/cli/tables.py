"""Tables and JSON on the terminal; a pipe gets plain text of the same content."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
    from rich.table import Table

    names = list(columns or (rows[0] if rows else []))
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in names:
        numeric = any(isinstance(row.get(name), (int, float)) and not isinstance(row.get(name), bool) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in names))
    Console(highlight=False).print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Two columns: what, and its value."""
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, cell(value))
    Console(highlight=False).print(table)


def cell(value: Any) -> str:
    """A value in few characters; markup of rich in a user's text stays text."""
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))


def _finite(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _finite(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
