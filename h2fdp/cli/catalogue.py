"""`h2fdp methods`, `models`, `datasets`, `schema`: what there is to choose from, and who holds which labels."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2fdp.cli.tables import AsJson, DataRoot, Settings, print_facts, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd


def methods_command(as_json: AsJson = False) -> None:
    """List the methods: a choice of objective, privacy, aggregation, server, schedule and topology each."""
    from h2fdp.methods import describe_methods

    rows = describe_methods()
    if as_json:
        print_json(rows)
        return
    axes = [name for name in rows[0] if name not in ("name", "description")]
    head = ", ".join(axes)  # in one column: six would not fit
    print_table([{"name": row["name"], head: _choices(row, axes), "description": row["description"]} for row in rows])


def _choices(row: dict[str, str], axes: list[str]) -> str:
    """One for each axis: `average, upcycled` is one."""
    return ", ".join(row[axis].replace(", ", " ") for axis in axes)


def models_command(as_json: AsJson = False) -> None:
    """List the models."""
    from h2fdp.models import describe

    rows = describe()
    print_json(rows) if as_json else print_table(rows)


_MOST_ROWS = 40
_WIDEST = 40  # columns of labels; more are drawn together
_SHADES = "·░▒▓█"


def datasets_command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="An experiment file (YAML).")] = None,
    settings: Settings = None,
    data_root: DataRoot = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it into this .png or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets; of an experiment show how many records of each label each device holds."""
    if file is None:
        from h2fdp.data import describe

        print_json(describe()) if as_json else print_table(describe())
        return
    from h2fdp.run import Experiment

    held = Experiment.from_file(file, settings or []).holdings(data_root)
    if png is not None:
        from h2fdp.reports.pictures import draw_holdings

        draw_holdings(held.to_numpy(), [str(each) for each in held.index], png)
    if as_json:
        owners = held.attrs["owners"]
        pairs = zip(held.index, held.to_numpy().tolist(), strict=True)
        rows = [{"device": str(name), "records": row} for name, row in pairs]
        print_json([row | ({"owner": owners[at]} if owners else {}) for at, row in enumerate(rows)])
        return
    _show(held)
    if png is not None:
        typer.echo(str(png))


def _show(held: pd.DataFrame) -> None:
    """Devices with their labels by shades: the darker, the more of the device's records; a point for none."""
    counts, owners = held.to_numpy(), held.attrs["owners"]
    sizes, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
    fewest, most = int(kinds.min()), int(kinds.max())
    kind = str(most) if fewest == most else f"{fewest} to {most}"
    named = [f"{number} {name}" for number, name in enumerate(held.columns) if str(number) != str(name)]
    print_facts(
        {
            "records": f"{int(sizes.sum()):,} on {len(held):,} devices, {sizes.min():,} to {sizes.max():,} each",
            "labels": f"{counts.shape[1]}; a device holds {kind} of them",
            **({"classes": textwrap.shorten(", ".join(named), 300, placeholder=" ...")} if named else {}),
            "test records": "are not counted here",
        }
    )
    labels = min(counts.shape[1], _WIDEST)
    head = "".join(str(label % 10) for label in range(labels))
    room = max(12, 56 - labels - max(len(str(name)) for name in held.index[:_MOST_ROWS]))  # in 80 columns
    rows = [
        {
            "device": str(name),
            "records": int(sizes[at]),
            "labels": int(kinds[at]),
            head: "".join(_SHADES[4 * count // (row.max() + 1) + 1 if count else 0] for count in row[:labels]),
            **({"owner": textwrap.shorten(owners[at], room, placeholder=" ...")} if owners else {}),
        }
        for at, (name, row) in enumerate(list(zip(held.index, counts, strict=True))[:_MOST_ROWS])
    ]
    print_table(rows)
    if len(held) > _MOST_ROWS or labels < counts.shape[1]:
        typer.echo("... (--json and --png have all devices and labels)")


def schema_command(
    of: Annotated[str, typer.Argument(metavar="experiment|topology", help="Of which file.")] = "experiment",
) -> None:
    """Print the JSON Schema of a file, for editors."""
    from h2fdp.errors import UserError

    if of == "experiment":
        from h2fdp.experiment.sections import ExperimentFile

        print_json(ExperimentFile.model_json_schema())
    elif of == "topology":
        from h2fdp.network.schema import TopologyFile

        print_json(TopologyFile.model_json_schema())
    else:
        raise UserError(f'expected experiment or topology, found "{of}"', "schema")
