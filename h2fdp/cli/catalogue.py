"""`h2fdp methods`, `models`, `schema`: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from h2fdp.cli.tables import AsJson, print_json, print_table


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


def schema_command(
    of: Annotated[str, typer.Argument(metavar="experiment|topology", help="Of which file.")] = "experiment",
) -> None:
    """Print the JSON Schema of a file, for editors."""
    from h2fdp.config.check import json_schema
    from h2fdp.errors import UserError

    if of == "experiment":
        from h2fdp.experiment.sections import ExperimentFile

        print_json(json_schema(ExperimentFile))
    elif of == "topology":
        from h2fdp.topology.schema import TopologyFile

        print_json(json_schema(TopologyFile))
    else:
        raise UserError(f'expected experiment or topology, found "{of}"', "schema")
