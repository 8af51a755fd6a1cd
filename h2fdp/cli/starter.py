"""`h2fdp init`: a folder to begin with: a network, an experiment, a model of one's own, a test."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

_NAMES = ("network.yaml", "experiment.yaml", "my_model.py", "test_experiment.py")
_TEMPLATES = Path(__file__).with_name("starter_files")  # texts, which no tool takes for the package's own code


def init_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, made if it is not there.")],
) -> None:
    """Write a network, an experiment, a model of your own and a test into a folder."""
    from h2fdp.errors import UserError

    there = [name for name in _NAMES if (directory / name).exists()]
    if there:
        raise UserError(f"has {', '.join(there)} already; nothing was written", str(directory))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _NAMES:
            (directory / name).write_bytes((_TEMPLATES / f"{name}.txt").read_bytes())
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(directory)) from None
    typer.echo(f"wrote {', '.join(_NAMES)}\n\nnext:")
    folder, file = shlex.quote(str(directory)), shlex.quote(str(directory / "experiment.yaml"))
    commands = {
        f"h2fdp topology show {shlex.quote(str(directory / 'network.yaml'))}": "the network",
        f"h2fdp datasets {file}": "who holds which labels",
        f"h2fdp privacy explain {file}": "who learns what, before a run",
        f"h2fdp run {file} --out {shlex.quote(f'runs/{directory.resolve().name}')}": "train",
        f"python -m unittest discover {folder}": "the test",
    }
    margin = max(map(len, commands)) + 2
    for command, purpose in commands.items():
        typer.echo(f"  {command.ljust(margin)}# {purpose}")
