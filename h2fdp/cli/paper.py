"""`h2fdp table` and `h2fdp plot`: what a sweep reached, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from h2fdp.cli.tables import AsJson, print_json, print_table

SweepPath = Annotated[Path, typer.Argument(metavar="SWEEP", help="A sweep's directory.")]
Target = Annotated[
    float | None, typer.Option(help="A test accuracy, as 0.7: what it cost to reach it first.", show_default=False)
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="KEY=VALUE", help="Only points of the grid with this value.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=TEXT", help="Another word for a key, a value or a measure."),
]


def table_command(
    sweep: SweepPath,
    show: Annotated[
        list[str] | None, typer.Option(metavar="MEASURE", help="A column: accuracy, epsilon, energy_j, ...")
    ] = None,
    across: Annotated[str | None, typer.Option(metavar="KEY", help="Its values become the columns.")] = None,
    target: Target = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE", help="Differences from the runs with this value, seed by seed."),
    ] = None,
    where: Where = None,
    label: Labels = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it: .tex, .csv or .md.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the table of a sweep: means over seeds with 95 % intervals, costs to reach an accuracy."""
    from h2fdp.records.atomic import output_file, write_text
    from h2fdp.reports.paper import FORMATS, paper_table
    from h2fdp.reports.study_numbers import study_numbers

    numbers = study_numbers(sweep, target, against).where(where or [])
    table = paper_table(numbers, show or [], across, labels_of(label or []))
    if out is not None:
        with output_file(out, "--out", list(FORMATS)):
            write_text(out, FORMATS[out.suffix](table))
        typer.echo(str(out))
    elif as_json:
        print_json(table.values())
    else:
        of = "means over seeds" if against is None else f"means over seeds of the differences from {against}"
        print_table(table.texts(), title=f"{of}, and half of their 95 % intervals (Student's t)")


def plot_command(
    sweep: SweepPath,
    x: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="A swept key; or interval, energy_j, clock_s.", show_default=False),
    ] = None,
    line: Annotated[str | None, typer.Option(metavar="KEY", help="A swept key with a line for each value.")] = None,
    y: Annotated[str, typer.Option(metavar="MEASURE", help="accuracy, loss, epsilon, energy_j, ...")] = "accuracy",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".pdf, .png, .svg, or .pgf for LaTeX.", show_default="in SWEEP")
    ] = None,
    target: Target = None,
    where: Where = None,
    label: Labels = None,
) -> None:
    """Draw a figure of a sweep: a measure over a swept key, with 95 % error bars."""
    from h2fdp.errors import UserError
    from h2fdp.reports.figures import AXES
    from h2fdp.reports.paper import along_runs, over_key
    from h2fdp.reports.pictures import write_figure
    from h2fdp.reports.study_numbers import study_numbers
    from h2fdp.reports.sweep_view import SweepView

    numbers = study_numbers(sweep, target).where(where or [])
    words = labels_of(label or [])
    if x in AXES:
        if line is not None:
            raise UserError(f"means nothing with --x {x}, where each point of the grid has a line", "--line")
        figure = along_runs(SweepView.read(sweep), numbers, x, y, words)
    else:
        figure = over_key(numbers, x, line, y, words)
    typer.echo(str(write_figure(figure, out or sweep / f"{y}.pdf")))


def labels_of(texts: list[str]) -> dict[str, str]:
    """`NAME=TEXT` each.

    Raises:
        UserError: one has no equals sign.
    """
    from h2fdp.errors import UserError

    for text in texts:
        if "=" not in text:
            raise UserError(f"expected NAME=TEXT, found {text}", "--label")
    return {name.strip(): text for name, _, text in (each.partition("=") for each in texts)}
