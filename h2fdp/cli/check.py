"""`h2fdp check`: whether run directories are intact."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2fdp.cli.tables import AsJson, print_json

if TYPE_CHECKING:
    from h2fdp.integrity import Findings

DAMAGED = 1


def check_command(
    directories: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Of runs, sweeps or searches.")],
    as_json: AsJson = False,
) -> None:
    """Check run directories: files by their checksums, accounts by the ledger; exit code 1 for damage."""
    from h2fdp.integrity import check

    found = [check(directory) for directory in directories]
    if as_json:
        print_json([each.as_json() for each in found])
    else:
        for each in found:
            _show(each)
    if any(each.damaged for each in found):
        raise typer.Exit(DAMAGED)


def _show(found: Findings) -> None:
    """A line about the directory, then what is wrong; runs of a sweep that are intact are counted only."""
    word = "DAMAGED" if found.damaged else "nothing is damaged, but not all has begun" if found.waiting else "intact"
    _print(f"{found.directory}: {word} ({found.state})")
    if found.confirmed:
        _print(f"agree: {'; '.join(found.confirmed)}", "  ")
    for text in found.unknown:
        _print(f"not checked: {text}", "  ")
    for problem in found.problems:
        _print(str(problem), "  ")
    if found.waiting:
        more = f" and {len(found.waiting) - 1:,} more" if len(found.waiting) > 1 else ""
        _print(f"not begun: {found.waiting[0]}{more}", "  ")
    if found.runs:
        whole = sum(run.whole for run in found.runs.values())
        _print(f"{whole} of {len(found.runs)} runs are intact", "  ")
    for run in found.runs.values():
        if not run.whole:
            _show(run)


def _print(text: str, indent: str = "") -> None:
    """A path longer than the line is not broken, so that it can be copied."""
    width = shutil.get_terminal_size().columns
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    typer.echo("\n".join(lines))
