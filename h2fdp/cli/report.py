"""`h2fdp report`: one page about runs, or about a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, or one sweep's directory.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The page; by default report.html in a single directory.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every figure as PNG and PDF into this folder, too.")
    ] = None,
) -> None:
    """Write one self-contained page about runs: accuracy, epsilon of each observer, cost, schedule, noise, network."""
    from h2fdp.reports import report

    typer.echo(str(report(runs, out, png)))
