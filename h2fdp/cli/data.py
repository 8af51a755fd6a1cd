"""`h2fdp data show`: who holds which labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from h2fdp.cli.options import AsJson, DataRoot, ExperimentPath, Seed, Settings
from h2fdp.cli.tables import print_facts, print_json

app = typer.Typer(no_args_is_help=True, help="Look at the data that devices hold.")
_MOST_ROWS = 40
_WIDEST = 40  # columns of labels; more are drawn together
_SHADES = "·░▒▓█"


@app.callback()
def _group() -> None:
    """Look at the data that devices hold."""


@app.command("show")
def show_command(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    data_root: DataRoot = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it into this .png or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an experiment spreads its records: how many of each label each device holds."""
    from h2fdp.run import Experiment

    experiment = Experiment.from_file(file, settings or [], seed)
    frame = experiment.holdings(data_root)
    counts, names = frame.to_numpy(), [str(each) for each in frame.index]
    if png is not None:
        from h2fdp.reports.holdings import draw_holdings

        draw_holdings(counts, names, png)
    if as_json:
        print_json([{"device": name, "records": row} for name, row in zip(names, counts.tolist(), strict=True)])
        return
    _show(counts, names)
    if png is not None:
        typer.echo(str(png))


def _show(counts: Any, names: list[str]) -> None:
    sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    print_facts(
        {
            "records": f"{int(sizes.sum()):,} on {len(names):,} devices, {sizes.min():,} to {sizes.max():,} each",
            "labels": f"{counts.shape[1]}; a device holds {_range(int(held.min()), int(held.max()))} of them",
            "test records": "are not counted here",
        }
    )
    typer.echo()
    wide = max(len("device"), *(len(name) for name in names[:_MOST_ROWS]))
    labels = min(counts.shape[1], _WIDEST)
    apart = " " if labels <= 16 else ""
    marks = apart.join(str(label % 10) for label in range(labels))
    typer.echo(f"{'device'.ljust(wide)}  records  labels  {marks}")
    for name, row, size, kinds in list(zip(names, counts, sizes, held, strict=True))[:_MOST_ROWS]:
        shades = apart.join(_shade(int(row[label]), int(row.max())) for label in range(labels))
        typer.echo(f"{name.ljust(wide)}  {size:7,}  {kinds:6}  {shades}")
    if len(names) > _MOST_ROWS or labels < counts.shape[1]:
        typer.echo("... (--json and --png have all devices and labels)")


def _shade(count: int, most: int) -> str:
    """The darker, the more of the device's records; a point for none."""
    return _SHADES[0] if count == 0 else _SHADES[1 + min(3, 4 * count // (most + 1))]


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
