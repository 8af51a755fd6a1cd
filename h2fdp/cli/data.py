"""`h2fdp data show`: who holds which labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from h2fdp.cli.tables import AsJson, DataRoot, ExperimentPath, Seed, Settings, print_facts, print_json

app = typer.Typer(no_args_is_help=True, help="Look at the data that devices hold.")
_MOST_ROWS = 40
_WIDEST = 40  # columns of labels; more are drawn together
_LONGEST = 300  # characters of a list of classes
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
    owners, classes = frame.attrs["owners"], [str(each) for each in frame.columns]
    if png is not None:
        from h2fdp.reports.pictures import draw_holdings

        draw_holdings(counts, names, png)
    if as_json:
        rows = [{"device": name, "records": row} for name, row in zip(names, counts.tolist(), strict=True)]
        print_json([row | ({"owner": owners[at]} if owners else {}) for at, row in enumerate(rows)])
        return
    _show(counts, names, classes, owners)
    if png is not None:
        typer.echo(str(png))


def _show(counts: Any, names: list[str], classes: list[str], owners: list[str]) -> None:
    sizes, held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    numbers = [str(label) for label in range(len(classes))]
    called = ", ".join(f"{number} {name}" for number, name in zip(numbers, classes, strict=True))
    print_facts(
        {
            "records": f"{int(sizes.sum()):,} on {len(names):,} devices, {sizes.min():,} to {sizes.max():,} each",
            "labels": f"{counts.shape[1]}; a device holds {_range(int(held.min()), int(held.max()))} of them",
            **({} if classes == numbers else {"classes": _cut(called, _LONGEST)}),
            "test records": "are not counted here",
        }
    )
    typer.echo()
    wide = max(len("device"), *(len(name) for name in names[:_MOST_ROWS]))
    labels = min(counts.shape[1], _WIDEST)
    apart = " " if labels <= 16 else ""
    marks = apart.join(str(label % 10) for label in range(labels))
    typer.echo(f"{'device'.ljust(wide)}  records  labels  {marks}{'  owner' if owners else ''}")
    for at, (name, row, size, kinds) in enumerate(list(zip(names, counts, sizes, held, strict=True))[:_MOST_ROWS]):
        shades = apart.join(_shade(int(row[label]), int(row.max())) for label in range(labels))
        line = f"{name.ljust(wide)}  {size:7,}  {kinds:6}  {shades}"
        typer.echo(f"{line}  {_cut(owners[at], max(12, 78 - len(line)))}" if owners else line)
    if len(names) > _MOST_ROWS or labels < counts.shape[1]:
        typer.echo("... (--json and --png have all devices and labels)")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _shade(count: int, most: int) -> str:
    """The darker, the more of the device's records; a point for none."""
    return _SHADES[0] if count == 0 else _SHADES[1 + min(3, 4 * count // (most + 1))]


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
