"""`h2fdp init` and `plan`: a folder to begin with; the controller's first decision, with its reasons."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.tables import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Settings,
    print_facts,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from h2fdp.run.preview import FirstDecision

_NAMES = ("network.yaml", "experiment.yaml", "my_model.py", "test_experiment.py")
_TEMPLATES = Path(__file__).with_name("starter_files")  # texts, which no tool takes for the package's own code
_HYPOTHETICAL = (
    "hypothetical: control.enabled is false in this file, so a run keeps the file's own schedule; this is what the "
    "controller would decide (a run follows it with --set control.enabled=true)"
)
_MOST_EDGES_SHOWN = 30


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


def plan_command(
    file: ExperimentPath,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print the controller's first decision and the reasons for it, without training."""
    from h2fdp.run.api import plan

    found = plan(file, settings or [], data_root)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found)


def _show(plan: FirstDecision) -> None:
    from h2fdp.reports.decisions import reason
    from h2fdp.reports.figures import number
    from h2fdp.run.preview import costs_in_words

    rows = [
        {
            "edge server": name,
            "trust": facts["trust"],
            "devices": facts["devices"],
            "take part": plan.participation[name],
            "J/message": facts["device_joules"],
            "s/message": facts["device_seconds"],
        }
        for name, facts in list(plan.edges.items())[:_MOST_EDGES_SHOWN]
    ]
    exact = plan.weighed is not None
    if not plan.stated:
        print_text(_HYPOTHETICAL)
        typer.echo()
    print_table(rows, title=f"first decision, at {'the costs of the first interval' if exact else 'mean costs'}")
    if len(plan.edges) > len(rows):
        typer.echo(f"and {len(plan.edges) - len(rows)} more edge servers (--json has them all)")
    row = {**plan.as_dict(), "devices": "turns" if exact else "random"}
    costs = costs_in_words(plan.network)
    facts: dict[str, Any] = {
        "tau": plan.tau,
        "why": reason(row),
        "whole run": ", ".join(f"{what} {value}" for what, value in costs.items()),
        "constants": ", ".join(f"{name} {number(each)}" for name, each in plan.constants.items() if each is not None),
    }
    print_facts(facts)
