"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ExperimentPath = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file (YAML).")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key: training.intervals=20, topology.trust.probability=1."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="H2FDP_DATA or a cache")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
